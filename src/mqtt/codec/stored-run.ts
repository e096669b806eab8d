// Frames that lie back to back, as the sender of a connection takes several at once: those of a run
// that has just been received, or stored ones.

import type { MqttVersion } from "./packets.ts";
import { runFramesMax } from "./publish-run.ts";

/** Frames of PUBLISHes of one QoS, without DUP and RETAIN. Valid during the call. */
export interface FrameRun {
  readonly bytes: Buffer;
  /** Of the first frame. */
  readonly start: number;
  readonly version: MqttVersion;
  readonly qos: 0 | 1;
  /** Bytes of the largest frame, or more. */
  readonly frameBytesMax: number;
  /** By frame, and the end of the last one. */
  readonly starts: Uint32Array;
  /** By frame: where its packet id is, at QoS 1. */
  readonly idOffsets: Uint32Array;
}

const plainQos1 = 0x32;
const nothing = Buffer.alloc(0);

/** Scratch: it holds one run at a time. */
export class StoredRun implements FrameRun {
  bytes: Buffer = nothing;
  version: MqttVersion = 4;
  readonly qos = 1;
  frameBytesMax = 0;
  readonly starts = new Uint32Array(runFramesMax + 1);
  readonly idOffsets = new Uint32Array(runFramesMax);

  get start(): number {
    return this.starts[0] as number;
  }

  /**
   * Takes the first `count` frames of a stored run, canonical ones of QoS 1. False where one of them
   * does not go out as it is, but for its packet id. REQUIRES: `count` is at most `runFramesMax`.
   */
  fill(
    run: { readonly frames: Buffer; frameStart(index: number): number },
    count: number,
    version: MqttVersion,
  ): boolean {
    const { starts, idOffsets } = this;
    const bytes = run.frames;
    let largest = 0;
    let start = run.frameStart(0);
    for (let index = 0; index < count; index++) {
      const end = run.frameStart(index + 1);
      if (bytes[start] !== plainQos1) return false;
      let at = start + 1;
      while ((bytes[at] as number) >= 0x80) at++;
      starts[index] = start;
      idOffsets[index] = at + 3 + (((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number));
      if (end - start > largest) largest = end - start;
      start = end;
    }
    starts[count] = start;
    this.bytes = bytes;
    this.version = version;
    this.frameBytesMax = largest;
    return true;
  }
}
