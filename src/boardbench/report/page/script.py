"""What runs in the page: it expands the data, fits each chart to its column and draws it. It loads nothing."""

JS = r"""
(function () {
  "use strict";
  var charts = JSON.parse(document.getElementById("charts").textContent);
  function rows(parts) {
    var out = [];
    parts.forEach(function (part) {
      var names = Object.keys(part.columns), n = names.length ? part.columns[names[0]].length : 0;
      for (var i = 0; i < n; i++) {
        var row = Object.assign({}, part.same);
        for (var k = 0; k < names.length; k++) row[names[k]] = part.columns[names[k]][i];
        out.push(row);
      }
    });
    return out;
  }
  function fitted(value, width, words) {
    if (Array.isArray(value)) return value.map(function (one) { return fitted(one, width, words); });
    if (value && typeof value === "object") {
      var out = {};
      Object.keys(value).forEach(function (key) {
        out[key] = key === "width" && value[key] === "fill" ? width
          : key === "columns" && value[key] === "fit" ? Math.max(1, Math.floor(width / 110))
          : key === "tickCount" && value[key] === "fit" ? Math.max(3, Math.floor(width / 80))
          : key === "limit" && value[key] === "fit" ? Math.max(30, Math.floor(width / words) - 10)
          : fitted(value[key], width, words);
      });
      return out;
    }
    return value;
  }
  function nothing() { return Promise.reject(new Error("this page loads nothing")); }
  var loader = { load: nothing, sanitize: nothing };
  function draw(chart) {
    var place = document.getElementById("chart-" + chart.key), full = place.clientWidth;
    if (!full || place.dataset.drawn === String(full)) return Promise.resolve();
    place.dataset.drawn = String(full);
    var spec = fitted(chart.spec, Math.max(120, full - chart.spec.usermeta.beside), chart.spec.usermeta.words);
    spec.datasets = {};
    Object.keys(chart.data).forEach(function (name) { spec.datasets[name] = rows(chart.data[name]); });
    return vegaEmbed(place, spec, { actions: false, renderer: "svg", loader: loader, mode: "vega-lite" })
      .then(function () {
        var svg = place.querySelector("svg");
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", chart.says);
      });
  }
  function drawAll() {
    return charts.reduce(function (before, chart) {
      return before.then(function () { return draw(chart); }).catch(function (error) {
        var place = document.getElementById("chart-" + chart.key);
        place.textContent = "This chart could not be drawn (" + error.message + "); its numbers stand below.";
        console.error(error);
      });
    }, Promise.resolve());
  }
  var waiting;
  window.addEventListener("resize", function () { clearTimeout(waiting); waiting = setTimeout(drawAll, 150); });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = !one.hasAttribute("data-long"); });
  });
  drawAll().then(function () { document.documentElement.dataset.ready = "yes"; });
})();
"""
