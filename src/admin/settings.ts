// Settings of the admin room, plain data.

export type AdminSettings = {
  readonly host: string;
  readonly port: number;
  /** Host names, beside addresses and localhost, by which this node may be asked. Lower case. */
  readonly hosts: readonly string[];
  /** `/metrics` without a key. */
  readonly openMetrics: boolean;
  readonly bodyBytesMax: number;
  /** Beyond: refused with 429. Each may hold a body. */
  readonly requestsMax: number;
  readonly auditBytesMax: number;
};
