// Names of slab folders: `g` + eight digits of the generation, and `p` + the number of the pack once it
// has been packed anew. A folder is written once, under one name, and never becomes another.

export type SlabName = {
  /** Of the generation. */
  readonly number: number;
  /** How often it was packed anew. */
  readonly pack: number;
};

const pattern = /^g(\d+)(?:p(\d+))?$/;

export function folderName({ number, pack }: SlabName): string {
  const name = `g${String(number).padStart(8, "0")}`;
  return pack === 0 ? name : `${name}p${pack}`;
}

/** Undefined for what is no slab's folder. */
export function parseFolderName(name: string): SlabName | undefined {
  const match = pattern.exec(name);
  if (match === null) return undefined;
  return { number: Number(match[1]), pack: Number(match[2] ?? 0) };
}
