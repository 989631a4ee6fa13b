
// ---- the plans of a search: one is shown, next to the first one if the reader compares: a link to #plan=N, or a click on its row, chooses it
const PLAN = 'a[href^="#plan="]';
const plans = [...document.querySelectorAll('.plan')], planLinks = [...document.querySelectorAll(PLAN)];
const planOf = (link) => link.getAttribute('href').slice('#plan='.length);
const firstPlan = plans.length ? plans.find((each) => !each.hidden).dataset.plan : null;
function showPlan(plan) {
  if (!plans.length) return;
  view.plan = plans.some((each) => each.dataset.plan === plan) ? plan : firstPlan;
  for (const each of plans) {
    const compared = view.compare && each.dataset.plan === firstPlan && each.matches('section .plan');
    each.hidden = each.dataset.plan !== view.plan && !compared;
  }
  for (const link of planLinks) link.setAttribute('aria-current', planOf(link) === view.plan);
  showRuns(canvases.filter((canvas) => !canvas.closest('[hidden]')));
}
function choosePlan(plan) {
  select(null);
  view.hover = view.pinned = null;  // microbatches of another schedule
  hideTip();
  showPlan(plan);
  layout();
  fit();
  const chosen = plans.find((each) => !each.hidden);
  chosen.scrollIntoView({block: 'nearest'});
  said.textContent = `${chosen.querySelector('h2').textContent} is shown`;
}
document.addEventListener('click', (event) => {
  const within = event.target.closest('a, tr'), link = within && (within.matches(PLAN) ? within : within.querySelector(PLAN));
  if (!link || event.ctrlKey || event.metaKey) return;
  if (within !== link && !getSelection().isCollapsed) return;  // the reader marks text of the row
  event.preventDefault();
  choosePlan(planOf(link));
});
for (const point of document.querySelectorAll('svg.front a')) {
  point.addEventListener('pointermove', (event) => showTip(escapeText(point.getAttribute('aria-label')).replaceAll('; ', '<br>'), event));
  point.addEventListener('pointerleave', hideTip);
}
