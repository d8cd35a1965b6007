// Helpers that build and update elements. Texts from the service enter the page only
// as text nodes and attributes, never as markup.

// el returns an element. A property that starts with "on" is an event listener, and
// the others are attributes; null and false leave an attribute out.
export function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  setAll(node, properties);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// svg returns an SVG element with attributes.
export function svg(tag, properties, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAll(node, properties);
  node.append(...children);
  return node;
}

function setAll(node, properties) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
}

// setText changes the text of an element if it differs, so that an update without a
// change costs no layout.
export function setText(node, text) {
  const first = node.firstChild;
  if (first === null || first !== node.lastChild || first.nodeType !== Node.TEXT_NODE) {
    node.textContent = text;
  } else if (first.data !== text) {
    first.data = text;
  }
}

// setToken shows a fencing token with a gap before every three digits. The gaps are no characters,
// so that the token can be copied.
export function setToken(node, text) {
  if (node.textContent === text) return;
  const groups = /^\d+$/.test(text) ? text.split(/(?=(?:\d{3})+$)/) : [text];
  node.replaceChildren(el("span", {}, ...groups.map((digits) => el("span", { class: "digits" }, digits))));
}

// setAttribute changes an attribute if it differs; null removes it.
export function setAttribute(node, name, value) {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

// setHidden shows or hides an element.
export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// KeyedList keeps one child element for each item, and reuses the elements of items
// that it already shows. create returns an object with the field node, and update
// writes an item into it.
export class KeyedList {
  constructor(parent, create, update) {
    this.parent = parent;
    this.create = create;
    this.update = update;
    this.rows = new Map();
  }

  // render shows the items in order. keyOf returns the identity of an item. The focus
  // stays on its row, or moves to the row that takes its place.
  render(items, keyOf) {
    const focused = this.parent.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...this.parent.children].findIndex((child) => child.contains(focused)) : -1;
    const before = this.rows;
    this.rows = new Map();
    for (const item of items) {
      const key = keyOf(item);
      const row = before.get(key) ?? this.create(item);
      before.delete(key);
      this.rows.set(key, row);
      this.update(row, item);
    }
    for (const row of before.values()) row.node.remove();
    let next = this.parent.firstElementChild;
    for (const row of this.rows.values()) {
      if (row.node === next) {
        next = next.nextElementSibling;
      } else {
        this.parent.insertBefore(row.node, next);
      }
    }
    if (focused && document.activeElement !== focused) this.refocus(focused, place);
  }

  refocus(focused, place) {
    if (focused.isConnected) {
      focused.focus({ preventScroll: true });
      return;
    }
    const children = this.parent.children;
    const row = children[Math.min(place, children.length - 1)];
    (row?.querySelector("a, button") ?? document.getElementById("main")).focus({ preventScroll: true });
  }
}
