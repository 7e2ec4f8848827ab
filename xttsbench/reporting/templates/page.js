// What the page does besides being read: the switch of the theme, buttons that copy, folds that open for a link.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () => {
    const chosen = root.style.colorScheme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const show = () => {
    root.dataset.theme = dark() ? "dark" : "light";
    button.textContent = dark() ? "Light theme" : "Dark theme";
    document.dispatchEvent(new Event("theme"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.style.colorScheme = dark() ? "light" : "dark";
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text); // needs a secure context; a file that was opened is none everywhere
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const pre of document.querySelectorAll("pre.copied")) {
    const holder = document.createElement("div");
    holder.className = "copyable";
    pre.replaceWith(holder);
    const press = document.createElement("button");
    press.type = "button";
    press.textContent = "Copy";
    press.addEventListener("click", async () => {
      await copy(pre.textContent + "\n");
      press.textContent = "Copied";
      setTimeout(() => (press.textContent = "Copy"), 1500);
    });
    holder.append(pre, press);
  }

  const open = () => {
    let element = location.hash && document.getElementById(location.hash.slice(1));
    for (; element; element = element.parentElement) if (element.tagName === "DETAILS") element.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
