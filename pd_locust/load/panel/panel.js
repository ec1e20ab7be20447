// The panel of Locust's tab "PD" and of the page pd/. Draws what pd/live says; decides nothing itself.
(() => {
  "use strict";
  const STYLE = "PANEL_STYLE";
  const BASE = new URL(".", document.currentScript.src);
  const PERIOD_MS = { running: 2000, spawning: 2000 };
  const IDLE_PERIOD_MS = 5000;
  const STATISTICS = ["mean", "p50", "p95", "p99"];
  const ZH = {
    "State": "状态", "Run time": "运行时间", "Users": "用户数", "In flight": "在途请求", "Limit": "限值",
    "Loop lag p99": "事件循环延迟 p99", "CPU of a core": "单核 CPU", "ready": "就绪", "spawning": "正在加压",
    "running": "运行中", "stopping": "正在停止", "stopped": "已停止", "cleanup": "清理中", "missing": "无",
    "Now": "当前", "latencies in ms, exact, of successful requests; rates of the last 30 s":
      "延迟单位为毫秒，精确值，仅含成功请求；速率为最近 30 秒",
    "Tier": "档位", "What": "范围", "Finished": "完成", "Failed": "失败", "tok/s": "tok/s", "req/s": "请求/s",
    "Goodput/s": "有效吞吐/s", "Attainment": "达标率", "level of {n} users, sample": "{n} 用户级别，样本",
    "level, sample": "级别，样本", "ramp": "加压阶段", "last {n} s": "最近 {n} 秒", "first wave": "首波",
    "TTFT over time": "TTFT 随时间变化", "mean, with least and largest": "均值，及最小值和最大值",
    "limit": "限值", "Levels held": "已测级别", "and the search": "与容量搜索", "Verdict": "判定",
    "interval": "区间", "n": "样本数", "PASS": "通过", "FAIL": "未通过", "INCONCLUSIVE": "无法判定",
    "generator late": "压测端滞后", "to": "至", "next: {n} users": "下一级：{n} 用户",
    "{n} levels left at worst": "最多还剩 {n} 级", "answer between {low} and {high}": "答案介于 {low} 与 {high} 之间",
    "{low} users keep the limit": "{low} 用户满足限值", "{high} do not": "{high} 用户不满足",
    "not confirmed": "未确认", "confirmed": "已确认", "no answer": "没有答案", "none": "无",
    "Doubts": "疑点", "reasons not to trust a number yet": "暂不可全信这些数字的原因",
    "Likely cause: {cause}. Try: {remedy}.": "可能原因：{cause}。建议：{remedy}。", "mean": "均值",
    "{n} users": "{n} 用户", "Nothing doubtful so far.": "目前没有疑点。",
    "Take home": "下载", "every request so far (CSV)": "迄今全部请求 (CSV)", "report so far (HTML)": "迄今报告 (HTML)",
    "tables so far (CSV, Markdown)": "迄今表格 (CSV、Markdown)", "this page alone": "单独打开本页",
    "No request has finished yet.": "尚无请求完成。", "Locust does not answer.": "Locust 没有响应。", "users": "用户",
  };

  // ---------------------------------------------------------------- words and numbers
  const query = new URLSearchParams(location.search);
  let language = query.get("lang") || localStorage.getItem("pd-language") || navigator.language;
  language = language.startsWith("zh") ? "zh" : "en";
  function say(english, values = {}) {
    const text = (language === "zh" && ZH[english]) || english;
    return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  }
  const absent = (value) => value === null || value === undefined;
  function number(value, digits = 0) {
    if (absent(value)) return "n/a";
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }
  const percent = (share) => (absent(share) ? "n/a" : `${number(share * 100, share < 1 && share > 0.99 ? 2 : 1)} %`);
  function clock(seconds) {
    if (absent(seconds)) return "n/a";
    const s = Math.floor(seconds);
    const parts = [Math.floor(s / 60) % 60, s % 60].map((part) => String(part).padStart(2, "0"));
    return s >= 3600 ? `${Math.floor(s / 3600)}:${parts.join(":")}` : parts.join(":");
  }

  // ---------------------------------------------------------------- elements
  function build(create, tag, attributes, children) {
    const node = create(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (!absent(value)) node.setAttribute(name, value);
    }
    node.append(...children.flat(Infinity).filter((child) => !absent(child)));
    return node;
  }
  const el = (tag, attributes = {}, ...children) => build((t) => document.createElement(t), tag, attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    build((t) => document.createElementNS("http://www.w3.org/2000/svg", t), tag, attributes, children);

  // ---------------------------------------------------------------- charts
  function ticks(low, high, count, steps = [1, 2, 5, 10]) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = steps.map((s) => s * power).find((s) => s >= rough) || rough;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
    return found;
  }
  function timeTicks(low, high) {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
    const step = steps.find((s) => (high - low) / s <= 7) || 86400;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
    return found;
  }

  // points: {x, y, low, high, mark, tip}; the band runs from low to high, or whiskers where there are marks.
  function chart({ key, title, note, points, limit, spans = [], time = false, width }) {
    const height = 210, left = 52, right = 12, top = 14, bottom = 26;
    const xs = points.map((p) => p.x);
    let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    if (!time) { const pad = (x1 - x0) * 0.06 || Math.max(1, x0 * 0.2); x0 = Math.max(0, x0 - pad); x1 += pad; }
    if (x1 <= x0) x1 = x0 + 1;
    const largest = Math.max(...points.map((p) => p.y));
    const spread = Math.max(...points.map((p) => p.high ?? p.y));
    let y1 = Math.max(largest * 1.15, Math.min(spread * 1.04, largest * 2)) || 1;
    // A limit far above would press the curve flat: then it is only named.
    const near = limit && limit.value <= y1 * 3;
    // Room above the limit for its own name and, where there are levels, for theirs.
    if (near) y1 = Math.max(y1, limit.value * (spans.length ? 1.3 : 1.12));
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const py = (y) => height - bottom - (Math.max(0, Math.min(y, y1)) / y1) * (height - top - bottom);
    const at = (p) => `${px(p.x).toFixed(1)} ${py(p.y).toFixed(1)}`;
    const parts = [];
    for (const [place, span] of spans.entries()) {
      const [a, b] = [Math.max(px(span.start_s), left), Math.min(px(span.stop_s), width - right)];
      if (b - a < 1) continue;
      if (place % 2 === 0) parts.push(svg("rect", { class: "span", x: a, y: top, width: b - a, height: height - top - bottom }));
      const words = span.users === null ? [] : [say("{n} users", { n: span.users }), String(span.users)];
      const label = words.find((word) => b - a > word.length * 7 + 6);
      if (label) parts.push(svg("text", { x: (a + b) / 2, y: top + 11, "text-anchor": "middle" }, label));
    }
    for (const y of ticks(0, y1, 4)) {
      parts.push(svg("path", { class: "grid-line", d: `M${left} ${py(y)}H${width - right}` }));
      parts.push(svg("text", { x: left - 7, y: py(y) + 4, "text-anchor": "end" }, number(y, y1 < 5 ? 1 : 0)));
    }
    for (const x of time ? timeTicks(x0, x1) : ticks(x0, x1, 6).filter(Number.isInteger)) {
      parts.push(svg("text", { x: px(x), y: height - 8, "text-anchor": "middle" }, time ? clock(x) : number(x)));
    }
    if (time && points.length > 1) {
      const upper = points.map((p) => `${px(p.x).toFixed(1)} ${py(p.high).toFixed(1)}`);
      const lower = points.map((p) => `${px(p.x).toFixed(1)} ${py(p.low).toFixed(1)}`).reverse();
      parts.push(svg("path", { class: "band", d: `M${upper.concat(lower).join("L")}Z` }));
    }
    // A level that was held several times is where its last hold put it.
    const line = time ? points : [...new Map(points.map((p) => [p.x, p])).values()].sort((a, b) => a.x - b.x);
    parts.push(svg("path", { class: time ? "curve" : "curve faint", d: `M${line.map(at).join("L")}${line.length === 1 ? "h0.1" : ""}` }));
    if (limit) {
      const y = near ? py(limit.value) : top;
      if (near) parts.push(svg("path", { class: "limit", d: `M${left} ${y}H${width - right}` }));
      const label = `${say("limit")} ${number(limit.value)} ms${near ? "" : " ↑"}`;
      parts.push(svg("text", { class: "limit-label", x: left + 4, y: y - 4 }, label));
    }
    for (const p of points.filter((one) => one.mark)) {
      const [x, y] = [px(p.x), py(p.y)];
      if (!absent(p.low)) parts.push(svg("path", { class: "whisker", d: `M${x} ${py(p.low)}V${py(p.high)}` }));
      const shape = {
        pass: `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`,
        fail: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`,
        unsure: `M${x} ${y - 5}l5 5l-5 5l-5 -5Z`,
      }[p.mark];
      parts.push(svg("path", { class: `mark ${p.mark}`, d: shape }));
    }
    const cursor = svg("path", { class: "cursor" });
    const readout = el("span", { class: "readout" }, points.length ? points[points.length - 1].tip : "");
    const hover = (x) => {
      const nearest = points.reduce((a, b) => (Math.abs(px(b.x) - x) < Math.abs(px(a.x) - x) ? b : a));
      cursor.setAttribute("d", `M${px(nearest.x)} ${top}V${height - bottom}`);
      cursor.style.visibility = "visible";
      readout.textContent = nearest.tip;
    };
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${title}: ${readout.textContent}`,
      onpointermove: (event) => {
        hovered = { key, x: ((event.clientX - picture.getBoundingClientRect().left) / picture.clientWidth) * width };
        hover(hovered.x);
      },
      onpointerleave: () => { hovered = null; cursor.style.visibility = "hidden"; },
    }, parts, cursor);
    if (hovered && hovered.key === key) hover(hovered.x);
    return [el("div", { class: "title" }, el("b", {}, title), el("span", { class: "note" }, note), readout), picture];
  }
  let hovered = null;

  // ---------------------------------------------------------------- sections
  const latency = (metric, value) => number(value, metric === "tpot" ? 2 : 1);
  function strip(now) {
    const tile = (label, value, style = "") =>
      el("div", { class: "tile" }, el("div", { class: "label" }, say(label)), el("div", { class: `value ${style}` }, value));
    const late = now.client.limited ? "fail" : "";
    const other = language === "zh" ? "English" : "中文";
    return el("div", { class: "card strip" },
      tile("State", say(now.state), "word"), tile("Run time", clock(now.elapsed_s)), tile("Users", number(now.users)),
      tile("In flight", number(now.in_flight)), tile("Limit", now.limit.text, "word"),
      tile("Loop lag p99", absent(now.client.loop_lag_p99_ms) ? "n/a" : `${number(now.client.loop_lag_p99_ms, 1)} ms`, late),
      tile("CPU of a core", absent(now.client.cpu_share) ? "n/a" : `${number(now.client.cpu_share * 100)} %`, late),
      el("div", { class: "language" }, el("button", { onclick: () => speak(language === "zh" ? "en" : "zh") }, other)));
  }

  function table(now) {
    if (!now.tiers.length) return el("div", { class: "card empty" }, say("No request has finished yet."));
    const statistic = (metric, name, figures) => {
      const value = figures[`${metric}_ms`][name];
      const limited = now.limit.metric === metric && now.limit.statistic === name && !absent(value);
      const colour = limited ? (value > now.limit.limit_ms ? " fail" : " pass") : "";
      return el("td", { class: (name === "mean" ? "first" : "") + colour }, latency(metric, value));
    };
    const both = (figures) => ["ttft", "tpot"].map((metric) => STATISTICS.map((name) => statistic(metric, name, figures)));
    const count = (value, style) => el("td", { class: value ? "fail" : style }, number(value));
    const rows = now.tiers.flatMap((tier) => {
      const { level, window: recent } = tier;
      const what = !level.sampled && level.users === null ? say("ramp")
        : level.users === null ? say("level, sample") : say("level of {n} users, sample", { n: level.users });
      const rates = [number(recent.output_tokens_per_s), number(recent.requests_per_s, 1), number(tier.in_flight),
        number(recent.goodput_per_s, 1), percent(recent.attainment_share)];
      return [
        el("tr", { "data-tier": tier.tier }, el("td", { class: "text tier", rowspan: 2 }, tier.tier), el("td", { class: "text" }, what),
          el("td", {}, number(level.sampled)), count(level.failed), both(level),
          rates.map((text, place) => el("td", { class: place ? "rate" : "rate first", rowspan: 2 }, text))),
        el("tr", { class: "minor" }, el("td", { class: "text" }, say("last {n} s", { n: number(recent.finished ? recent.seconds : 30) }) +
            (recent.finished && !recent.settled ? `, ${say("first wave")}` : "")),
          el("td", {}, number(recent.finished)), count(recent.failed), both(recent)),
      ];
    });
    const head = [
      el("tr", {}, el("th", { colspan: 4 }), el("th", { class: "group first", colspan: 4 }, "TTFT (ms)"),
        el("th", { class: "group first", colspan: 4 }, "TPOT (ms)"), el("th", { class: "first", colspan: 5 })),
      el("tr", {}, ["Tier", "What"].map((name) => el("th", { class: "text" }, say(name))),
        ["Finished", "Failed"].map((name) => el("th", {}, say(name))),
        [0, 1].map(() => STATISTICS.map((name) => el("th", { class: name === "mean" ? "first" : "" }, say(name)))),
        ["tok/s", "req/s", "In flight", "Goodput/s", "Attainment"].map((name, place) =>
          el("th", { class: place ? "" : "first" }, say(name)))),
    ];
    return el("div", { class: "card scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows)));
  }

  function columnsFor(width, cards) {
    const columns = Math.min(cards, cards === 3 && width > 1200 ? 3 : width > 980 ? 2 : 1);
    return { columns, inner: Math.floor((width - 14 * (columns - 1)) / columns) - 26 };
  }
  const grid = (columns, cards) =>
    el("div", { class: "grid", style: `grid-template-columns: repeat(${columns}, minmax(0, 1fr))` }, cards);

  function curves(now, width) {
    const limit = now.limit.metric === "ttft" ? { value: now.limit.limit_ms } : null;
    const shown = now.tiers.filter((tier) => tier.curve.points.length);
    if (!shown.length) return [];
    const { columns, inner } = columnsFor(width, shown.length);
    const cards = shown.map((tier) => {
      const points = tier.curve.points.map(([x, y, low, high, n]) =>
        ({ x, y, low, high, tip: `${clock(x)}  ${number(y, 1)} ms (${number(low, 1)}–${number(high, 1)}), n=${n}` }));
      return el("div", { class: "card" }, chart({
        key: `curve ${tier.tier}`, title: tier.tier, note: "ms", points, limit, spans: tier.curve.spans, time: true, width: inner,
      }));
    });
    return [el("h2", {}, say("TTFT over time"), " ", el("small", {}, say("mean, with least and largest"))), grid(columns, cards)];
  }

  function answer(search) {
    if (!search) return null;
    const keeps = absent(search.low) ? null : say("{low} users keep the limit", search);
    const not = absent(search.high) ? null : say("{high} do not", search);
    if (search.end === "gave up") return `${say("no answer")}: ${search.why}`;
    const known = [keeps, not].filter(Boolean).join(", ");
    if (search.end) return `${known} (${say(search.confirmed ? "confirmed" : "not confirmed")})`;
    return [known, `${say("next: {n} users", { n: search.next_users })} (${search.why})`,
      say("{n} levels left at worst", { n: search.most_left })].filter(Boolean).join(" · ");
  }

  function levels(now, width) {
    const shown = now.tiers.filter((tier) => tier.levels.length || tier.search);
    if (!shown.length) return [];
    const { columns, inner } = columnsFor(width, Math.max(2, shown.length));
    const value = (level) => level.observed_ms ?? level.ttft_ms.mean;
    const mark = (level) => ({ PASS: "pass", FAIL: "fail" }[level.verdict] || "unsure");
    const { metric, statistic, limit_ms: limitMs } = now.limit;
    const name = `${(metric || "ttft").toUpperCase()} ${say(statistic || "mean")}`;
    const cards = shown.map((tier) => {
      const drawn = tier.levels.filter((level) => !absent(value(level)) && !absent(level.users));
      const points = drawn.map((level) => ({
        x: level.users, y: value(level), low: level.low_ms, high: level.high_ms, mark: mark(level),
        tip: `${level.users} ${say("users")}: ${latency(metric, value(level))} ms, ${say(level.verdict)}`,
      }));
      const rows = [...tier.levels].reverse().map((level) => el("tr", {},
        el("td", {}, number(level.users)),
        el("td", { class: `text ${mark(level)}` }, say(level.verdict), level.client_limited ? ` (${say("generator late")})` : ""),
        el("td", {}, latency(metric, value(level))),
        el("td", {}, absent(level.low_ms) ? "n/a" : `${latency(metric, level.low_ms)} ${say("to")} ${latency(metric, level.high_ms)}`),
        el("td", {}, number(level.ttft_ms.p95, 1)), el("td", {}, number(level.finished)),
        el("td", {}, number(level.in_flight, 1)), el("td", {}, number(level.output_tokens_per_s))));
      const heads = ["Users", "Verdict", name, "interval", "TTFT p95", "n", "In flight", "tok/s"];
      return el("div", { class: "card", "data-levels": tier.tier },
        points.length
          ? chart({ key: `levels ${tier.tier}`, title: tier.tier, note: `${name}, ms`, points, width: inner,
                    limit: limitMs ? { value: limitMs } : null })
          : el("div", { class: "title" }, el("b", {}, tier.tier)),
        el("div", { class: "answer" }, answer(tier.search)),
        rows.length ? el("div", { class: "levels scroll" }, el("table", {},
          el("thead", {}, el("tr", {}, heads.map((head, place) => el("th", { class: place === 1 ? "text" : "" }, say(head))))),
          el("tbody", {}, rows))) : null);
    });
    const searching = shown.some((tier) => tier.search);
    return [el("h2", {}, say("Levels held"), searching ? ` ${say("and the search")}` : ""), grid(columns, cards)];
  }

  function doubts(now) {
    const heading = el("h2", {}, say("Doubts"), " ", el("small", {}, say("reasons not to trust a number yet")));
    if (!now.doubts.length) return [heading, el("div", { class: "card empty" }, say("Nothing doubtful so far."))];
    return [heading, el("ul", { class: "card" }, now.doubts.map((doubt) =>
      el("li", { "data-doubt": doubt.code }, el("b", {}, `${doubt.where}: `), doubt.seen,
        el("span", { class: "note" }, say("Likely cause: {cause}. Try: {remedy}.", doubt)))))];
  }

  function links(alone) {
    const link = (file, text) => el("a", { href: new URL(file, BASE).href, download: file ? "" : null }, say(text));
    return [el("h2", {}, say("Take home")), el("div", { class: "links" },
      link("requests.csv", "every request so far (CSV)"), link("report.html", "report so far (HTML)"),
      link("tables.zip", "tables so far (CSV, Markdown)"), alone ? null : link("", "this page alone"))];
  }

  // ---------------------------------------------------------------- life
  const host = el("div", { id: "pd-panel" });
  const root = host.attachShadow({ mode: "open" });
  const changing = el("div");
  const staying = el("div");
  const alone = document.getElementById("pd-page");
  let latest = null, drawn = "", timer = 0;

  function speak(chosen) {
    language = chosen;
    localStorage.setItem("pd-language", chosen);
    staying.replaceChildren(...links(alone));
    drawn = "";
    poll();
  }
  function draw() {
    const width = host.clientWidth;
    if (!latest || !width) return;
    const state = `${width}${latest.text}`;
    if (state === drawn) return;
    drawn = state;
    const now = latest.now;
    changing.replaceChildren(strip(now),
      el("h2", {}, say("Now"), " ", el("small", {}, say("latencies in ms, exact, of successful requests; rates of the last 30 s"))),
      table(now), ...curves(now, width), ...levels(now, width), ...doubts(now));
  }
  async function poll() {
    clearTimeout(timer);
    let period = IDLE_PERIOD_MS;
    if (!document.hidden && !host.hidden && host.isConnected) {
      try {
        const answered = await fetch(new URL(`live?lang=${language}`, BASE), { cache: "no-store" });
        const text = await answered.text();
        latest = { text, now: JSON.parse(text) };
        period = PERIOD_MS[latest.now.state] || IDLE_PERIOD_MS;
        draw();
      } catch {
        changing.prepend(changing.querySelector(".gone") || el("p", { class: "gone fail" }, say("Locust does not answer.")));
        drawn = "";
      }
    }
    clearTimeout(timer);
    timer = setTimeout(poll, period);
  }
  function theme() {
    const dark = localStorage.theme ? localStorage.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    host.dataset.theme = dark ? "dark" : "light";
    if (alone) {
      document.body.dataset.theme = host.dataset.theme;
      document.documentElement.style.colorScheme = host.dataset.theme;
    }
  }
  // Locust's page is React's: we stay at the end of its container, and hide Locust's plain table of our tab.
  function place() {
    theme();
    const container = document.querySelector("[role=tablist]")?.closest("[class*=MuiContainer]");
    const open = Boolean(container) && new URLSearchParams(location.search).get("tab") === "pd";
    for (const other of document.querySelectorAll("[data-pd-open]")) if (!open) other.removeAttribute("data-pd-open");
    if (!open) { host.hidden = true; return; }
    container.setAttribute("data-pd-open", "");
    if (host.parentNode !== container) container.append(host);
    if (host.hidden || !timer) { host.hidden = false; poll(); }
  }

  root.append(el("style", {}, STYLE), changing, staying);
  staying.replaceChildren(...links(alone));
  new ResizeObserver(draw).observe(host);
  addEventListener("storage", theme);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  if (alone) {
    alone.append(host);
    theme();
    poll();
  } else {
    host.hidden = true;
    document.head.append(el("style", {}, "[data-pd-open] .MuiTableContainer-root { display: none; }"));
    new MutationObserver(place).observe(document.getElementById("root"), { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-selected"] });
    place();
  }
})();
