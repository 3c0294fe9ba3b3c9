// Figures and times for people.

/** As `tenure` writes durations: 29.9s, 4m05s, 1h00m. */
export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 60) return `${(Math.floor(seconds * 10) / 10).toFixed(1)}s`;
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${two(Math.floor(seconds) % 60)}s`;
  return `${Math.floor(minutes / 60)}h${two(minutes % 60)}m`;
}

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number < 10 && unit > 0 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

/** A time of day of this browser's place; the day too if it isn't today. */
export function time(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** A holder's note of how far it is, in one line. */
export function progress(note) {
  const parts = [note.step, note.text, note.counter ? String(note.counter) : ""].filter(Boolean);
  return `${parts.join(", ") || "(nothing said)"}, ${duration(note.age_ms)} ago`;
}
