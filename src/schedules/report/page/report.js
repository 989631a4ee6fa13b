
// ---- the page of a report: its data are in it
setData(JSON.parse(document.getElementById('data').textContent));
addEventListener('hashchange', readLink);
readLink();
