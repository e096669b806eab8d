/** Whether `dist` is newer than all that it is made from. */
export function isBuilt(): boolean;
