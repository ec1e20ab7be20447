"use strict";
// The nearest point of a chart under the pointer says its numbers; without a script nothing else is missing.
const tip = document.getElementById("tip");
for (const plot of document.querySelectorAll(".plot")) {
  const svg = plot.querySelector("svg");
  const points = JSON.parse(plot.querySelector("script").textContent);
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 6);
  const leave = () => { ring.remove(); tip.hidden = true; };
  const show = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let nearest = null, least = 40 ** 2;
    for (const point of points) {
      const distance = (point[0] - at.x) ** 2 + (point[1] - at.y) ** 2;
      if (distance < least) { nearest = point; least = distance; }
    }
    if (!nearest) return leave();
    ring.setAttribute("cx", nearest[0]);
    ring.setAttribute("cy", nearest[1]);
    svg.append(ring);
    tip.textContent = nearest[2];
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY - 34 + "px";
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", leave);
}
