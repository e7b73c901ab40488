// Where a graph's nodes go: springs along edges, repulsion between all (Fruchterman and Reingold), the same every time.

export function layout(edges, size, margin) {
  const n = edges.length;
  const points = Array.from({ length: n }, (_, i) => [Math.cos((2 * Math.PI * i) / n), Math.sin((2 * Math.PI * i) / n)]);
  const ideal = 1.6 / Math.sqrt(n);
  for (let round = 0; round < 400; round++) {
    const heat = 0.12 * (1 - round / 400), moves = points.map(() => [0, 0]);
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      if (i === j) continue;
      const dx = points[i][0] - points[j][0], dy = points[i][1] - points[j][1], far = Math.hypot(dx, dy) || 1e-6;
      const push = (ideal * ideal) / far - (edges[i][j] === "1" ? (far * far) / ideal : 0) - 0.05 * far;
      moves[i][0] += (dx / far) * push;
      moves[i][1] += (dy / far) * push;
    }
    points.forEach((point, i) => {
      const far = Math.hypot(...moves[i]) || 1e-6, step = Math.min(far, heat) / far;
      point[0] += moves[i][0] * step;
      point[1] += moves[i][1] * step;
    });
  }
  const fit = (axis) => {
    const values = points.map((p) => p[axis]), low = Math.min(...values), span = Math.max(...values) - low || 1;
    return (p) => margin + ((p[axis] - low) / span) * (size - 2 * margin);
  };
  const [x, y] = [fit(0), fit(1)];
  return points.map((p) => [x(p), y(p)]);
}
