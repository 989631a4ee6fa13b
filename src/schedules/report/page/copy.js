
// ---- commands that the reader copies
// Copies the text, or lets the reader mark it where the page has no access to the clipboard.
async function copyText(text, button, element) {
  const name = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(element);
    button.textContent = 'Marked';
  }
  setTimeout(() => { button.textContent = name; }, 1500);
}
document.addEventListener('click', (event) => {
  const button = event.target.closest('button.copy');
  if (!button) return;
  const command = button.parentElement.querySelector('pre');
  copyText(command.textContent, button, command);
});
