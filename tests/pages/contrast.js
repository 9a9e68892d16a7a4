/* Texts whose contrast with what is behind them is less than WCAG AA asks for. */
() => {
  const light = (colour) => { const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => { for (let at = element; at; at = at.parentElement) { const c = getComputedStyle(at).backgroundColor;
    if (!/rgba\(.*, 0\)|transparent/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  const weak = [];
  for (const each of document.querySelectorAll("body *")) {
    if (each.closest("svg, script, style, noscript") || ![...each.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(each);
    if (style.visibility === "hidden" || !each.getClientRects().length) continue;
    const [a, b] = [light(style.color), light(behind(each))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) weak.push([each.textContent.trim().slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return weak; }
