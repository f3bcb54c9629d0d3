/* What the page knows of a job: pictures as they come, and what follows from two of them. */

/** Milliseconds between two pictures, and how long they are remembered for charts. */
export const POLL_MS = 1000;
const REMEMBERED = 600;
/** How long an answer may take; a server of many jobs waits 15 s for a driver. */
const ANSWER_MS = 20_000;

/** Fetches JSON; an error has the server's own words. */
export async function ask(path, options = {}) {
  let answer;
  let text;
  try {
    answer = await fetch(path, { headers: { 'Content-Type': 'application/json' }, signal: AbortSignal.timeout(ANSWER_MS), ...options });
    text = await answer.text();
  } catch (error) {
    throw new Unreachable(error.name === 'TimeoutError'
      ? `There is no answer within ${ANSWER_MS / 1000} s: the job is busy, or the connection is lost.`
      : 'The job does not answer: it has ended, or its address has changed.');
  }
  const body = parsed(text);
  if (!answer.ok) throw new Error((body?.errors ?? [`${answer.status} ${answer.statusText}`]).join(' '));
  if (body === undefined) throw new Error(`The answer to ${path} is no JSON.`);
  return body;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export class Unreachable extends Error {}

export const post = (path, body) => ask(path, { method: 'POST', body: JSON.stringify(body) });
export const put = (path, body) => ask(path, { method: 'PUT', body: JSON.stringify(body) });
export const patch = (path) => ask(path, { method: 'PATCH' });

/** Waits for an operation that was begun at a path; its outcome, or an error with its cause. */
export async function outcome(path, { every = 300, limit = 600_000, misses = 3 } = {}) {
  let missed = 0;
  for (const until = Date.now() + limit; Date.now() < until; await pause(every)) {
    let told;
    try {
      told = await ask(path);
    } catch (error) {
      // The operation goes on meanwhile.
      if (!(error instanceof Unreachable) || ++missed > misses) throw error;
      continue;
    }
    missed = 0;
    const { status, operation } = told;
    if (status.id !== 'COMPLETED') continue;
    const cause = operation['failure-cause'];
    if (cause) throw new Error(cause['stack-trace']);
    return operation;
  }
  throw new Error('There is no result after ten minutes; the checkpoints say how far it is.');
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Successive pictures of one job: the newest, and of earlier ones what charts show. */
export class Watched {
  constructor(id) {
    this.id = id;
    this.picture = null;
    this.checkpoints = [];
    this.times = [];
    this.charts = { read: [], written: [] };
  }

  /** Takes a picture in; its checkpoints are those that have changed since the last one. */
  take(picture) {
    const known = new Map(this.checkpoints.map((each) => [each.id, each]));
    for (const each of picture.checkpoints.history) known.set(each.id, each);
    this.checkpoints = [...known.values()].sort((a, b) => a.id - b.id).slice(-REMEMBERED);
    this.picture = picture;
    this.times = [...this.times, picture.job.now / 1000].slice(-REMEMBERED);
    this.charts = {
      read: [...this.charts.read, number_or_null(picture.rates?.read)].slice(-REMEMBERED),
      written: [...this.charts.written, number_or_null(picture.rates?.written)].slice(-REMEMBERED),
    };
  }

  /** Rates of a vertex: records a second in and out, mean shares of time; null while it does not run. */
  of(vertexId) {
    const { subtasks } = this.picture.vertices.find((each) => each.id === vertexId);
    const running = subtasks.filter((each) => each.state === 'RUNNING');
    if (!running.length) return null;
    const sum = (figure) => running.reduce((total, each) => total + each[figure], 0);
    return {
      in: sum('in_a_second'),
      out: sum('out_a_second'),
      busy: sum('busy') / running.length,
      blocked: sum('held') / running.length,
    };
  }
}

/** A value as charts take it; what is no number, such as "Infinity", is no point of a line. */
export const number_or_null = (value) => (Number.isFinite(value) ? value : null);

/** The least watermark of a vertex's subtasks: null where one has none yet, 'end' at the end of all. */
export function watermark_of(vertex) {
  const each = vertex.subtasks.map((subtask) => subtask.watermark);
  if (each.includes(null)) return null;
  const times = each.filter((ms) => ms !== 'end');
  return times.length ? Math.min(...times) : 'end';
}

/** One state for all subtasks of a vertex: the one that wants to be looked at first. in_turn: they need not run at once. */
export function state_of(vertex, in_turn) {
  const waiting = ['CREATED', 'SCHEDULED'];
  const order = ['FAILED', 'CANCELING', 'CANCELED', ...(in_turn ? [] : waiting), 'DEPLOYING', 'INITIALIZING',
    'RUNNING', ...(in_turn ? waiting : []), 'FINISHED'];
  const states = new Set(vertex.subtasks.map((subtask) => subtask.state));
  return order.find((state) => states.has(state)) ?? 'CREATED';
}


/* How figures are written. */

const SIGNIFICANT = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, notation: 'compact' });
const WHOLE = new Intl.NumberFormat('en');

export const compact = (number) => SIGNIFICANT.format(number);
export const whole = (number) => WHOLE.format(number);
export const percent = (share) => `${Math.round(share * 100)} %`;

export function bytes(count) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Bytes a minute by which state grows, in words; null where that is not known. */
export function growth(perMinute) {
  if (perMinute === null) return 'not known yet';
  if (Math.abs(perMinute) < 1) return 'none';
  return `${perMinute < 0 ? '−' : '+'}${bytes(Math.abs(perMinute))} a minute`;
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ${Math.floor((seconds % 3600) / 60)} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hourCycle: 'h23' });
export const moment = (ms) => new Date(ms).toLocaleString([], { hourCycle: 'h23' });
/** The time of day; the date too where that is another day. */
export const recent = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : moment(ms));
