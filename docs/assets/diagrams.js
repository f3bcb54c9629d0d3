// Draws the diagrams of a page in the colours of the palette that is on.
document$.subscribe(async () => {
  const dark = document.body.getAttribute("data-md-color-scheme") === "slate";
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral" });
  await mermaid.run({ querySelector: "pre.diagram code" });
});
