// Small helpers for drawing.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, parent = null) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent?.append(node);
  return node;
}

/** Sets a class or a text only where it changed: thousands of cells, sixty times a second. */
export function dress(node, value) {
  if (node.dressed !== value) { node.setAttribute("class", value); node.dressed = value; }
}

export function say(node, text) {
  if (node.said !== text) { node.textContent = text; node.said = text; }
  return node;
}
