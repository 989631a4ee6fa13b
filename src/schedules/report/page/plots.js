
// ---- plots: a crosshair with the values of the nearest point
// The page has each plot in two sizes (page.css).
for (const size of ['wide', 'narrow']) document.querySelectorAll('svg.plot.' + size).forEach((svg, index) => {
  const cross = svg.querySelector('.cross');
  const [x0, x1, left, right] = svg.dataset.scale.split(' ').map(Number);
  svg.addEventListener('pointermove', (event) => {
    const plot = data.plots[index], bounds = svg.getBoundingClientRect();
    const px = (event.clientX - bounds.left) / bounds.width * svg.viewBox.baseVal.width;
    const x = x0 + (px - left) / (right - left) * (x1 - x0);
    const near = plot.series.map((series) => series.points.reduce(
        (best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    const at = left + (near[0][0] - x0) / (x1 - x0 || 1) * (right - left);
    cross.setAttribute('x1', at);
    cross.setAttribute('x2', at);
    cross.style.visibility = 'visible';
    showTip(dim(`${escapeText(plot.x)} ${plain(near[0][0])}`) + '<br>' + plot.series.map(
        (series, i) => `${escapeText(series.name)} <b>${plain(near[i][1])}</b>`).join('<br>'), event);
  });
  svg.addEventListener('pointerleave', () => {
    cross.style.visibility = 'hidden';
    hideTip();
  });
});
