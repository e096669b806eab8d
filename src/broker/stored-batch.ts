// Plain publishes of one client that go into the store together: those that came in one read, whatever
// their topics. One step of the queue (publish-queue.ts) for all of them, which is over when the store
// has told of the last one. Where one of them failed each becomes a step of its own.

import type { CodedError } from "../base/index.ts";
import type { AckToken, MqttVersion, PublishRun } from "../mqtt/index.ts";
import type { AppendRun, AppendRunSpan } from "../store/index.ts";
import type { Message } from "./publish-path.ts";

/** What a batch takes at most; the store cuts it as it likes. */
const messagesMax = 1024;
const bytesMax = 256 * 1024;
const bytesMin = 4 * 1024;

export class StoredBatch implements AppendRun {
  readonly kind = "batch";
  readonly publisher: string;
  readonly form: "v4" | "v5";
  readonly qos = 1;
  readonly topics: string[] = [];
  readonly starts: number[] = [0];
  /** Of the first; those of the others follow. */
  readonly token: AckToken;
  bytes: Buffer = Buffer.allocUnsafeSlow(bytesMin);
  /** `open`: more may be added. */
  state: "open" | "writing" | "done" | "failed" = "open";
  /** What the store has told of, failures with their errors. */
  readonly told: Array<AppendRunSpan & { readonly error: CodedError | undefined }> = [];
  #toldCount = 0;

  constructor(publisher: string, version: MqttVersion, token: AckToken) {
    this.publisher = publisher;
    this.form = version === 5 ? "v5" : "v4";
    this.token = token;
  }

  get count(): number {
    return this.topics.length;
  }

  get sizeBytes(): number {
    return this.starts[this.count] as number;
  }

  /** Whether these belong here: REQUIRES that nothing of the client has come between. */
  admits(run: PublishRun): boolean {
    if (this.state !== "open" || this.count + run.count > messagesMax) return false;
    return this.sizeBytes + run.end - run.start <= bytesMax;
  }

  /** Copies the frames of a run in the form in which they are stored. */
  add(run: PublishRun): void {
    const { start, end, count } = run;
    const at = this.sizeBytes;
    this.#reserve(at + end - start);
    run.bytes.copy(this.bytes, at, start, end);
    const shift = at - start;
    for (let index = 0; index < count; index++) {
      const id = (run.idOffsets[index] as number) + shift;
      this.bytes[id] = 0;
      this.bytes[id + 1] = 0;
      this.topics.push(run.topic.text);
      this.starts.push((run.starts[index + 1] as number) + shift);
    }
  }

  /** True when it was the last that was missing: the batch is over then. */
  tell(error: CodedError | undefined, span: AppendRunSpan): boolean {
    this.told.push({ ...span, error });
    this.#toldCount += span.count;
    if (this.#toldCount < this.count) return false;
    this.told.sort((a, b) => a.from - b.from);
    this.state = this.told.some((each) => each.error !== undefined) ? "failed" : "done";
    return true;
  }

  message(index: number, timeUs: number): Message {
    return {
      topic: this.topics[index] as string,
      timeUs,
      publisher: this.publisher,
      form: this.form,
      qos: 1,
      retain: false,
      expiryUs: 0,
      expiryOffset: 0,
      frame: this.bytes.subarray(this.starts[index], this.starts[index + 1]),
    };
  }

  #reserve(sizeBytes: number): void {
    if (sizeBytes <= this.bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(sizeBytes, 2 * this.bytes.length));
    this.bytes.copy(grown, 0, 0, this.sizeBytes);
    this.bytes = grown;
  }
}
