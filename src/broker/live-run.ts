// A run of plain publishes on its way to those who are connected: as the session room sees it, and
// one by one for targets that take no runs. Scratch of a publish path: valid during one call.

import type { PublishRun } from "../mqtt/index.ts";
import type { MessageRun } from "../session/index.ts";
import type { Ttv } from "../store/index.ts";

export class LiveRun implements MessageRun {
  readonly kind = "live";
  publisher = "";
  #frames: PublishRun | undefined;
  /** Made when the first target asks for one. */
  readonly #messages: Array<Ttv | undefined> = [];

  begin(frames: PublishRun, publisher: string): void {
    this.#frames = frames;
    this.publisher = publisher;
    this.#messages.length = 0;
  }

  /** Nothing of the run is kept. */
  end(): void {
    this.#frames = undefined;
    this.#messages.length = 0;
  }

  /** REQUIRES: between `begin` and `end`. */
  get frames(): PublishRun {
    return this.#frames as PublishRun;
  }

  get topic(): string {
    return this.frames.topic.text;
  }

  get qos(): 0 | 1 {
    return this.frames.qos;
  }

  get count(): number {
    return this.frames.count;
  }

  get retain(): false {
    return false;
  }

  frameBytes(index: number): number {
    const { starts } = this.frames;
    return (starts[index + 1] as number) - (starts[index] as number);
  }

  message(index: number): Ttv {
    const made = this.#messages[index];
    if (made !== undefined) return made;
    const { frames, publisher } = this;
    const message: Ttv = {
      topic: frames.topic.text,
      timeUs: 0,
      publisher,
      form: frames.version === 5 ? "v5" : "v4",
      qos: frames.qos,
      retain: false,
      expiryUs: 0,
      expiryOffset: 0,
      frame: frames.frame(index),
    };
    this.#messages[index] = message;
    return message;
  }
}
