// The API in words, from the server's own openapi.json; nothing is fetched from elsewhere.

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

function resolve(schema, api) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.split("/").slice(1).reduce((part, name) => part[name], api);
}

/** A type in one line: 'integer, 1 to 1000', 'list of string or RuleSettings, or null'. */
function typed(schema, api) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map((one) => typed(one, api)).join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.type === "array") return `list of ${schema.items ? typed(schema.items, api) : "anything"}`;
  const low = schema.minimum ?? schema.minLength, high = schema.maximum ?? schema.maxLength;
  const span = low !== undefined && high !== undefined ? `, ${low} to ${high}${schema.type === "string" ? " characters" : ""}` : "";
  return (schema.type ?? "anything") + span;
}

function fields(schema, api) {
  const { properties = {}, required = [] } = resolve(schema, api);
  const rows = Object.entries(properties).map(([name, field]) => make("tr", {},
    make("th", { scope: "row" }, make("code", { textContent: name })),
    make("td", { textContent: typed(field, api) + (required.includes(name) ? "" : field.default == null ? "; may be left out" : `; ${JSON.stringify(field.default)} by default`) }),
    make("td", { textContent: field.description ?? "" })));
  const head = make("tr", {}, ...["field", "type", "meaning"].map((text) => make("th", { scope: "col", textContent: text })));
  return rows.length ? make("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: "fields" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))) : make("p", { className: "hint", textContent: "No fields." });
}

function events(schema, api) {
  return Object.entries(schema["x-events"]).flatMap(([name, data]) =>
    [make("h4", {}, "event ", make("code", { textContent: name })), make("p", { className: "hint", textContent: data.description ?? "" }), fields(data, api)]);
}

function operation(path, method, one, api) {
  const body = one.requestBody?.content["application/json"]?.schema, answer = one.responses["200"]?.content ?? {};
  const example = resolve(body, api)?.examples?.[0], parts = [make("h2", {}, make("code", { textContent: `${method.toUpperCase()} ${path}` })), make("p", { textContent: one.description ?? "" })];
  if (one.parameters?.length) parts.push(make("h3", { textContent: "Query" }), fields({ properties: Object.fromEntries(one.parameters.map((p) => [p.name, { ...p.schema, description: p.description ?? p.schema.description }])), required: one.parameters.filter((p) => p.required).map((p) => p.name) }, api));
  if (body) parts.push(make("h3", { textContent: "Body" }), fields(body, api));
  if (example) parts.push(make("pre", { tabIndex: 0, textContent: `curl -s ${location.origin}${path} -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'` }));
  if (answer["application/json"]) parts.push(make("h3", { textContent: "Answer" }), fields(answer["application/json"].schema, api));
  if (answer["text/event-stream"]) parts.push(make("h3", { textContent: "Answer: server-sent events" }), ...events(answer["text/event-stream"].schema, api));
  const refusals = Object.entries(one.responses).filter(([code]) => code !== "200").map(([code, { description }]) => `${code}: ${description}`).join("; ");
  if (refusals) parts.push(make("p", { className: "hint", textContent: `Refusals, as {"detail": "..."}: ${refusals}.` }));
  return make("section", { className: "route" }, ...parts);
}

const holder = document.getElementById("reference");
try {
  const api = await (await fetch("/openapi.json")).json();
  holder.replaceChildren(make("p", {}, `${api.info.summary} Version ${api.info.version}. The same for programs: `, make("a", { href: "/openapi.json", textContent: "openapi.json" }), "."),
    ...Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => operation(path, method, one, api))));
} catch { holder.replaceChildren(make("p", { className: "notice", textContent: "openapi.json could not be read. Is `letgo app` still running?" })); }
