"use strict";
// Without this script all chapters stand below each other, and can be read.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const pages = all(".page"), search = document.getElementById("search"), found = document.getElementById("found");

  // One page at a time: the one that the address names.
  function show() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const page = target?.closest(".page") ?? pages[0];
    for (const one of pages) one.hidden = one !== page;
    for (const link of all("nav a")) {
      if (link.hash === "#" + page.id) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else link.removeAttribute("aria-current");
    }
    if (target && target !== page) target.scrollIntoView();
    else scrollTo(0, 0);
  }

  // Live search: what holds all words, with its experiment and heading, on all pages at once.
  const items = all("[data-item]").map((node) => {
    const part = node.closest(".part"), page = node.closest(".page");
    const heading = part?.querySelector("h2")?.textContent ?? "";
    return { node, text: `${page.dataset.name} ${heading} ${node.textContent}`.toLowerCase() };
  });
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { node, text } of items) {
      const hit = words.every((word) => text.includes(word));
      node.classList.toggle("out", !hit);
      count += hit;
    }
    const isEmpty = (node) => !node.querySelector("[data-item]:not(.out)");
    for (const part of all(".part")) part.classList.toggle("out", words.length > 0 && isEmpty(part));
    document.body.classList.toggle("searching", words.length > 0);
    found.textContent = words.length ? `${count || "nothing"} found` : "";
    if (!words.length) return show();
    for (const link of all("nav a")) link.removeAttribute("aria-current");
    for (const page of pages) page.hidden = isEmpty(page);
    scrollTo(0, 0);
  }
  search.addEventListener("input", filter);
  addEventListener("hashchange", () => {
    search.value = "";
    filter();
  });
  // A link to the page that is shown changes no address, but may end a search.
  document.addEventListener("click", (event) => {
    if (event.target.closest("a[href^='#']")?.hash !== location.hash) return;
    search.value = "";
    filter();
  });

  // The viewer: x and y place the picture on the stage, scale is pixels of the stage a pixel of it.
  const viewer = document.getElementById("viewer"), stage = viewer.querySelector(".stage");
  const picture = stage.querySelector("img"), pointers = new Map();
  let x = 0, y = 0, scale = 1, least = 1;
  const keepInside = (place, length, room) =>
    length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, place));
  function place() {
    x = keepInside(x, picture.naturalWidth * scale, stage.clientWidth);
    y = keepInside(y, picture.naturalHeight * scale, stage.clientHeight);
    picture.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  }
  function fit() {
    least = Math.min(stage.clientWidth / picture.naturalWidth, stage.clientHeight / picture.naturalHeight);
    scale = least;
    place();
  }
  function zoom(factor, left = stage.clientWidth / 2, top = stage.clientHeight / 2) {
    const wanted = Math.min(Math.max(scale * factor, least), Math.max(4, 8 * least));
    x = left - ((left - x) * wanted) / scale;
    y = top - ((top - y) * wanted) / scale;
    scale = wanted;
    place();
  }
  const locate = (event) => {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  async function open(button) {
    const shown = button.querySelector("img");
    picture.src = shown.src;
    picture.alt = viewer.querySelector(".caption").textContent = shown.alt;
    await picture.decode();
    pointers.clear();
    viewer.showModal();
    fit();
  }
  for (const button of all("figure button")) button.addEventListener("click", () => open(button));
  const actions = { in: () => zoom(1.5), out: () => zoom(1 / 1.5), fit, close: () => viewer.close() };
  for (const button of all("button", viewer)) button.addEventListener("click", actions[button.value]);
  viewer.addEventListener("keydown", (event) => {
    const action = { "+": actions.in, "=": actions.in, "-": actions.out, 0: fit }[event.key];
    if (action) action();
  });
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...locate(event));
  }, { passive: false });
  stage.addEventListener("dblclick", (event) => (scale > 1.01 * least ? fit() : zoom(3, ...locate(event))));
  stage.addEventListener("pointerdown", (event) => {
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, locate(event));
  });
  const measure = () => {
    const [[a, b], [c, d] = [a, b]] = [...pointers.values()];
    return { left: (a + c) / 2, top: (b + d) / 2, apart: Math.hypot(a - c, b - d) };
  };
  // One finger or the mouse drags; two fingers drag by their middle, and zoom by their distance.
  stage.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const before = measure();
    pointers.set(event.pointerId, locate(event));
    const after = measure();
    x += after.left - before.left;
    y += after.top - before.top;
    zoom(before.apart && after.apart ? after.apart / before.apart : 1, after.left, after.top);
  });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, (event) => pointers.delete(event.pointerId));
  addEventListener("resize", () => viewer.open && fit());
  picture.draggable = false;
  filter();
})();
