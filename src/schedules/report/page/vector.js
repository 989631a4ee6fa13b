
// ---- the timelines as SVG: a pen with the methods that the drawing functions use
class VectorPen {
  constructor() {
    Object.assign(this, {text: [], hatches: new Map(), globalAlpha: 1, path: ''});
  }
  static number(value) { return +value.toFixed(2); }
  add(element) { this.text.push(element); }
  fillRect(x, y, w, h) {
    const n = VectorPen.number, faint = this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : '';
    if (w > 0 && h > 0) {
      this.add(`<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="${this.fillStyle}"${faint}/>`);
    }
  }
  fillText(words, x, y) {
    const anchor = {left: 'start', center: 'middle', right: 'end'}[this.textAlign || 'left'];
    const [, size] = this.font.match(/([\d.]+)px/), n = VectorPen.number;
    this.add(`<text x="${n(x)}" y="${n(y + size * 0.35)}" font-size="${size}" text-anchor="${anchor}" ` +
             `fill="${this.fillStyle}">${escapeText(words)}</text>`);
  }
  beginPath() { this.path = ''; }
  moveTo(x, y) { this.path += `M${VectorPen.number(x)} ${VectorPen.number(y)}`; }
  lineTo(x, y) { this.path += `L${VectorPen.number(x)} ${VectorPen.number(y)}`; }
  closePath() { this.path += 'Z'; }
  fill() { this.add(`<path d="${this.path}" fill="${this.fillStyle}"/>`); }
  stroke() { this.add(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"/>`); }
  hatch(color, cause) {
    const key = color + cause;
    if (!this.hatches.has(key)) this.hatches.set(key, {id: `hatch${this.hatches.size}`, color, path: HATCHES[cause]});
    return `url(#${this.hatches.get(key).id})`;
  }
  patterns() {
    return [...this.hatches.values()].map(({id, color, path}) =>
        `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse">` +
        `<path d="${path}" stroke="${color}" stroke-width="1.2"/></pattern>`).join('');
  }
}
// The visible part of all runs, with the followed microbatch.
function asSvg() {
  const pen = new VectorPen(), width = shown[0].w, heading = 26;
  let y = 0;
  for (const canvas of shown) {
    pen.add(`<g transform="translate(0 ${y})"><text x="${LEFT}" y="16" font-size="13" font-weight="600" ` +
            `fill="${style.ink}">${escapeText(canvas.run.label)}</text></g><g transform="translate(0 ${y + heading})">`);
    drawRun(canvas, pen);
    if (view.pinned) drawMarked(canvas, pen, view.pinned);
    pen.add('</g>');
    y += heading + heightOf(canvas.run) + 10;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${y}" viewBox="0 0 ${width} ${y}" ` +
         `font-family="${style.font.replace(/"/g, "'")}"><defs>${pen.patterns()}</defs>` +
         `<rect width="${width}" height="${y}" fill="${style.card}"/>${pen.text.join('\n')}</svg>\n`;
}
async function copySvg(event) {
  if (!shown.length) return;
  const button = event.currentTarget, svg = asSvg();
  try {
    await navigator.clipboard.writeText(svg);
    button.textContent = 'Copied';
  } catch {  // Without access to the clipboard, a file.
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([svg], {type: 'image/svg+xml'}));
    link.download = 'timeline.svg';
    link.click();
    button.textContent = 'Saved';
  }
  setTimeout(() => { button.textContent = 'Copy as SVG'; }, 1500);
}
onControl('svg', 'click', copySvg);
onControl('print', 'click', () => print());
