// A table of packets that no client may send, in hex, each with the reason it is refused with: for
// the codec, and for the launched broker.

import { parseHex } from "./raw-client.ts";

export type Row = [name: string, body: string, reasonCode: number];

/** Puts the remaining length behind the first byte: `frame("30", "0001 61")`. */
export function frame(text: string): Buffer {
  const [first = "", ...rest] = text.trim().split(" ");
  const body = parseHex(rest.join(""));
  if (body.length > 127) throw new Error("rows are short");
  return Buffer.concat([parseHex(first), Buffer.from([body.length]), body]);
}

const malformed = 0x81;
const protocol = 0x82;
const connect5 = "10 00044d51545405";
const connect4 = "10 00044d51545404";

const header: Row[] = [
  ["type 0", "00 ", protocol],
  ["type 0 with flags", "05 0001", protocol],
  ["CONNACK from a client", "20 0000", protocol],
  ["SUBACK from a client", "90 000100", protocol],
  ["UNSUBACK from a client", "b0 0001", protocol],
  ["PINGRESP from a client", "d0 ", protocol],
  ["CONNECT with flags", "11 00044d515454040200000000", malformed],
  ["PUBACK with flags", "42 0001", malformed],
  ["PUBREC with flags", "58 0001", malformed],
  ["PUBREL with flags 0000", "60 0001", malformed],
  ["PUBREL with flags 0011", "63 0001", malformed],
  ["PUBREL with DUP", "6a 0001", malformed],
  ["PUBCOMP with flags", "71 0001", malformed],
  ["SUBSCRIBE with flags 0000", "80 0001 000161 00", malformed],
  ["SUBSCRIBE with DUP", "8a 0001 000161 00", malformed],
  ["UNSUBSCRIBE with flags 0000", "a0 0001 000161", malformed],
  ["PINGREQ with flags", "c1 ", malformed],
  ["PINGREQ with a body", "c0 00", malformed],
  ["DISCONNECT with flags", "e1 ", malformed],
];

const header5: Row[] = [
  ["AUTH with flags", "f1 1800", malformed],
  ["empty AUTH", "f0 ", protocol],
  ["AUTH with an unknown reason", "f0 17 04 15 0001 6d", protocol],
  ["AUTH with the server's success", "f0 00 04 15 0001 6d", protocol],
  ["AUTH without a method", "f0 18 00", protocol],
  ["AUTH without properties", "f0 18", protocol],
  ["AUTH with data and no method", "f0 18 04 16 0001 6d", protocol],
  ["AUTH with trailing bytes", "f0 18 04 15 0001 6d 00", malformed],
  ["AUTH with a foreign property", "f0 18 05 1100000000", malformed],
];

const header4: Row[] = [
  ["AUTH before MQTT 5", "f0 1800", protocol],
  ["DISCONNECT with a body", "e0 00", malformed],
];

/** As the first packet. */
export const badConnects: Row[] = [
  ["empty", "10 ", malformed],
  ["wrong protocol name", "10 00044d515458 04 02 0000 0000", malformed],
  ["protocol name in lower case", "10 00046d717474 04 02 0000 0000", malformed],
  ["level 0", "10 00044d515454 00 02 0000 0000", 0x84],
  ["level 3 under the new name", "10 00044d515454 03 02 0000 0000", 0x84],
  ["level 4 under the old name", "10 00064d5149736470 04 02 0000 0000", 0x84],
  ["level 6", "10 00044d515454 06 02 0000 00 0000", 0x84],
  ["level 133", "10 00044d515454 85 02 0000 00 0000", 0x84],
  ["level 130", "10 00044d515454 82 02 0000 0000", 0x84],
  ["cut behind the name", "10 00044d515454", malformed],
  ["cut behind the level", connect4, malformed],
  ["cut in the keep alive", `${connect4} 02 00`, malformed],
  ["no client identifier", `${connect4} 02 0000`, malformed],
  ["client identifier cut", `${connect4} 02 0000 0002 61`, malformed],
  ["3.1.1: reserved flag", `${connect4} 03 0000 0000`, malformed],
  ["3.1.1: stray byte", `${connect4} 02 0000 0000 00`, malformed],
  ["3.1.1: empty identifier without clean session", `${connect4} 00 0000 0000`, 0x85],
  ["3.1.1: will QoS without will", `${connect4} 0a 0000 0001 61`, malformed],
  ["3.1.1: will retain without will", `${connect4} 22 0000 0001 61`, malformed],
  ["3.1.1: will QoS 3", `${connect4} 1e 0000 0001 61 0001 77 0000`, malformed],
  ["3.1.1: will flag without will", `${connect4} 06 0000 0001 61`, malformed],
  ["3.1.1: will without payload", `${connect4} 06 0000 0001 61 0001 77`, malformed],
  ["3.1.1: empty will topic", `${connect4} 06 0000 0001 61 0000 0000`, malformed],
  ["3.1.1: will topic with wildcard", `${connect4} 06 0000 0001 61 0001 23 0000`, malformed],
  ["3.1.1: user name flag without user name", `${connect4} 82 0000 0001 61`, malformed],
  ["3.1.1: password without user name", `${connect4} 42 0000 0001 61 0001 70`, malformed],
  ["3.1.1: password flag without password", `${connect4} c2 0000 0001 61 0001 75`, malformed],
  ["3.1.1: user name without its flag", `${connect4} 02 0000 0001 61 0001 75`, malformed],
  ["3.1.1: identifier with NUL", `${connect4} 02 0000 0001 00`, malformed],
  ["3.1.1: identifier not UTF-8", `${connect4} 02 0000 0001 ff`, malformed],
  ["3.1.1: user name not UTF-8", `${connect4} 82 0000 0001 61 0002 c3 28`, malformed],
  ["5: reserved flag", `${connect5} 03 0000 00 0000`, malformed],
  ["5: will QoS 3", `${connect5} 1e 0000 00 0001 61 00 0001 77 0000`, malformed],
  ["5: will QoS without will", `${connect5} 12 0000 00 0001 61`, malformed],
  ["5: no property length", `${connect5} 02 0000`, malformed],
  ["5: property length past the end", `${connect5} 02 0000 05 1100`, malformed],
  ["5: property length too long a form", `${connect5} 02 0000 8000 0000`, malformed],
  ["5: property id too long a form", `${connect5} 02 0000 06 9100 00000001 0000`, malformed],
  ["5: unknown property", `${connect5} 02 0000 02 7f00 0000`, malformed],
  ["5: property 0", `${connect5} 02 0000 02 0000 0000`, malformed],
  ["5: message expiry", `${connect5} 02 0000 05 0200000001 0000`, malformed],
  ["5: will delay outside the will", `${connect5} 02 0000 05 1800000001 0000`, malformed],
  ["5: topic alias", `${connect5} 02 0000 03 230001 0000`, malformed],
  ["5: server keep alive", `${connect5} 02 0000 03 130001 0000`, malformed],
  ["5: assigned client id", `${connect5} 02 0000 04 120001 61 0000`, malformed],
  ["5: session expiry twice", `${connect5} 02 0000 0a 1100000001 1100000001 0000`, protocol],
  ["5: receive maximum twice", `${connect5} 02 0000 06 210001 210001 0000`, protocol],
  ["5: receive maximum 0", `${connect5} 02 0000 03 210000 0000`, protocol],
  ["5: maximum packet size 0", `${connect5} 02 0000 05 2700000000 0000`, protocol],
  ["5: request problem information 2", `${connect5} 02 0000 02 1702 0000`, protocol],
  ["5: request response information 2", `${connect5} 02 0000 02 1902 0000`, protocol],
  ["5: request problem information twice", `${connect5} 02 0000 04 17001700 0000`, protocol],
  ["5: authentication data alone", `${connect5} 02 0000 04 160001 61 0000`, protocol],
  ["5: method twice", `${connect5} 02 0000 08 15000161 15000161 0000`, protocol],
  ["5: property cut by its length", `${connect5} 02 0000 03 110000 0001 0000`, malformed],
  ["5: user property without value", `${connect5} 02 0000 04 26000161 0000`, malformed],
  ["5: user property not UTF-8", `${connect5} 02 0000 07 260001ff000161 0000`, malformed],
  ["5: user property with NUL", `${connect5} 02 0000 07 26000161000100 0000`, malformed],
  ["5: will without properties", `${connect5} 06 0000 00 0001 61 0001 77 0000`, malformed],
  [
    "5: will with a session expiry",
    `${connect5} 06 0000 00 0000 05 1100000001 000177 0000`,
    malformed,
  ],
  [
    "5: will delay twice",
    `${connect5} 06 0000 00 0000 0a 1800000001 1800000001 000177 0000`,
    protocol,
  ],
  ["5: will payload format 2", `${connect5} 06 0000 00 0000 02 0102 000177 0000`, protocol],
  [
    "5: will response topic with wildcard",
    `${connect5} 06 0000 00 0000 04 08000123 000177 0000`,
    protocol,
  ],
  ["5: will topic alias", `${connect5} 06 0000 00 0000 03 230001 000177 0000`, malformed],
  ["5: stray byte", `${connect5} 02 0000 00 0000 00`, malformed],
  ["5: will topic empty", `${connect5} 06 0000 00 0000 00 0000 0000`, malformed],
];

// Bodies of PUBLISH: read the plain way and the hot way.
const publish: Row[] = [
  ["QoS 3", "36 000161 0001", malformed],
  ["DUP at QoS 0", "38 000161", malformed],
  ["empty", "30 ", malformed],
  ["topic length cut", "30 00", malformed],
  ["topic cut", "30 0002 61", malformed],
  ["topic with #", "30 000123", malformed],
  ["topic with +", "30 0003 612f2b", malformed],
  ["topic with NUL", "30 000100", malformed],
  ["topic not UTF-8: lone continuation", "30 000180", malformed],
  ["topic not UTF-8: overlong slash", "30 0002 c0af", malformed],
  ["topic not UTF-8: overlong NUL", "30 0002 c080", malformed],
  ["topic not UTF-8: surrogate", "30 0003 eda080", malformed],
  ["topic not UTF-8: surrogate pair", "30 0006 eda081edb080", malformed],
  ["topic not UTF-8: above U+10FFFF", "30 0004 f4908080", malformed],
  ["topic not UTF-8: cut sequence", "30 0002 e282", malformed],
  ["QoS 1 without id", "32 000161", malformed],
  ["QoS 1 with half an id", "32 000161 00", malformed],
];
const publish4: Row[] = [
  ["empty topic", "30 0000", protocol],
  ["id 0", "32 000161 0000", protocol],
  ["id 0 at QoS 2", "34 000161 0000", protocol],
];
const publish5: Row[] = [
  ["empty topic without alias", "30 0000 00", protocol],
  ["id 0", "32 000161 0000 00", protocol],
  ["no property length", "30 000161", malformed],
  ["property length past the end", "30 000161 05 0100", malformed],
  ["property length too long a form", "30 000161 8000", malformed],
  ["property length of five bytes", "30 000161 ffffffff7f", malformed],
  ["subscription identifier", "30 000161 02 0b01", protocol],
  ["subscription identifier 0", "30 000161 02 0b00", protocol],
  ["unknown property", "30 000161 02 7e00", malformed],
  ["property 0", "30 000161 02 0000", malformed],
  ["property 0x21, receive maximum", "30 000161 03 210001", malformed],
  ["property 0x22 behind 0x02", "30 000161 08 0200000001 220001", malformed],
  ["session expiry", "30 000161 05 1100000001", malformed],
  ["will delay", "30 000161 05 1800000001", malformed],
  ["reason string", "30 000161 04 1f000161", malformed],
  ["payload format 2", "30 000161 02 0102", protocol],
  ["payload format twice", "30 000161 04 01000100", protocol],
  ["expiry twice", "30 000161 0a 0200000001 0200000001", protocol],
  ["expiry cut", "30 000161 03 020000", malformed],
  ["alias twice", "30 000161 06 230001 230001", protocol],
  ["alias 0", "30 000161 03 230000", 0x94],
  ["alias cut", "30 000161 02 2300", malformed],
  ["content type twice", "30 000161 08 03000161 03000161", protocol],
  ["content type not UTF-8", "30 000161 04 030001ff", malformed],
  ["content type cut", "30 000161 04 03000261", malformed],
  ["response topic twice", "30 000161 08 08000161 08000161", protocol],
  ["response topic with wildcard", "30 000161 04 0800012b", protocol],
  ["response topic with NUL", "30 000161 04 08000100", malformed],
  ["response topic empty", "30 000161 03 080000", protocol],
  ["correlation data twice", "30 000161 08 09000161 09000161", protocol],
  ["correlation data cut", "30 000161 03 090001 61", malformed],
  ["user property without value", "30 000161 04 26000161", malformed],
  ["user property name not UTF-8", "30 000161 07 260001ff000161", malformed],
  ["user property value with NUL", "30 000161 07 26000161000100", malformed],
];

const acks: Row[] = ["40", "50", "62", "70"].flatMap((first): Row[] => [
  [`${first} empty`, `${first} `, malformed],
  [`${first} half an id`, `${first} 00`, malformed],
  [`${first} id 0`, `${first} 0000`, protocol],
]);
const acks4: Row[] = ["40", "50", "62", "70"].map((first) => [
  `${first} with a reason before MQTT 5`,
  `${first} 000100`,
  malformed,
]);
const acks5: Row[] = [
  ["PUBACK reason 1", "40 0001 01", protocol],
  ["PUBACK reason 0x92", "40 0001 92", protocol],
  ["PUBREC reason 0x92", "50 0001 92", protocol],
  ["PUBREL reason 0x10", "62 0001 10", protocol],
  ["PUBCOMP reason 0x97", "70 0001 97", protocol],
  ["PUBACK stray byte", "40 0001 00 00 00", malformed],
  ["PUBACK property length past the end", "40 0001 00 05", malformed],
  ["PUBACK reason string twice", "40 0001 00 08 1f000161 1f000161", protocol],
  ["PUBACK foreign property", "40 0001 00 05 1100000000", malformed],
  ["PUBREC server reference", "50 0001 00 04 1c000161", malformed],
];

const subscribe: Row[] = [
  ["SUBSCRIBE empty", "82 ", malformed],
  ["UNSUBSCRIBE empty", "a2 ", malformed],
  ["SUBSCRIBE half an id", "82 00", malformed],
];
const subscribe4: Row[] = [
  ["SUBSCRIBE id 0", "82 0000 000161 00", protocol],
  ["SUBSCRIBE without filters", "82 0001", protocol],
  ["SUBSCRIBE without options", "82 0001 000161", malformed],
  ["SUBSCRIBE filter cut", "82 0001 0003 61", malformed],
  ["SUBSCRIBE QoS 3", "82 0001 000161 03", malformed],
  ["SUBSCRIBE options of MQTT 5", "82 0001 000161 04", malformed],
  ["SUBSCRIBE reserved bits", "82 0001 000161 80", malformed],
  ["SUBSCRIBE empty filter", "82 0001 0000 00", malformed],
  ["SUBSCRIBE filter not UTF-8", "82 0001 0001fe 00", malformed],
  ["SUBSCRIBE filter with NUL", "82 0001 000100 00", malformed],
  ["SUBSCRIBE second filter without options", "82 0001 000161 00 000162", malformed],
  ["UNSUBSCRIBE id 0", "a2 0000 000161", protocol],
  ["UNSUBSCRIBE without filters", "a2 0001", protocol],
  ["UNSUBSCRIBE empty filter", "a2 0001 0000", malformed],
  ["UNSUBSCRIBE stray byte", "a2 0001 000161 00", malformed],
];
const subscribe5: Row[] = [
  ["SUBSCRIBE id 0", "82 0000 00 000161 00", protocol],
  ["SUBSCRIBE without filters", "82 0001 00", protocol],
  ["SUBSCRIBE without property length", "82 0001", malformed],
  ["SUBSCRIBE QoS 3", "82 0001 00 000161 03", malformed],
  ["SUBSCRIBE retain handling 3", "82 0001 00 000161 30", malformed],
  ["SUBSCRIBE reserved bit 6", "82 0001 00 000161 40", malformed],
  ["SUBSCRIBE reserved bit 7", "82 0001 00 000161 80", malformed],
  ["SUBSCRIBE identifier 0", "82 0001 02 0b00 000161 00", protocol],
  ["SUBSCRIBE identifier twice", "82 0001 04 0b010b02 000161 00", protocol],
  ["SUBSCRIBE identifier of five bytes", "82 0001 06 0bffffffff7f 000161 00", malformed],
  ["SUBSCRIBE identifier too long a form", "82 0001 03 0b8100 000161 00", malformed],
  ["SUBSCRIBE foreign property", "82 0001 03 230001 000161 00", malformed],
  ["SUBSCRIBE reason string", "82 0001 04 1f000161 000161 00", malformed],
  ["SUBSCRIBE No Local on a share", "82 0001 00 000a 2473686172652f672f61 04", protocol],
  ["UNSUBSCRIBE identifier", "a2 0001 02 0b01 000161", malformed],
  ["UNSUBSCRIBE without filters", "a2 0001 00", protocol],
  ["UNSUBSCRIBE id 0", "a2 0000 00 000161", protocol],
];

const disconnect5: Row[] = [
  ["DISCONNECT reason 1", "e0 01", protocol],
  ["DISCONNECT with a server's reason", "e0 8e", protocol],
  ["DISCONNECT session expiry twice", "e0 00 0a 1100000001 1100000001", protocol],
  ["DISCONNECT server reference", "e0 00 04 1c000161", protocol],
  ["DISCONNECT foreign property", "e0 00 03 210001", malformed],
  ["DISCONNECT stray byte", "e0 00 00 00", malformed],
];

/** On an open connection, by what they are about. */
export const badPackets: ReadonlyArray<{
  readonly title: string;
  readonly level: 4 | 5;
  readonly rows: readonly Row[];
}> = [
  { title: "fixed header", level: 5, rows: [...header, ...header5] },
  { title: "fixed header", level: 4, rows: [...header, ...header4] },
  { title: "PUBLISH", level: 5, rows: [...publish, ...publish5] },
  { title: "PUBLISH", level: 4, rows: [...publish, ...publish4] },
  { title: "acks", level: 5, rows: [...acks, ...acks5] },
  { title: "acks", level: 4, rows: [...acks, ...acks4] },
  { title: "SUBSCRIBE and UNSUBSCRIBE", level: 5, rows: [...subscribe, ...subscribe5] },
  { title: "SUBSCRIBE and UNSUBSCRIBE", level: 4, rows: [...subscribe, ...subscribe4] },
  { title: "DISCONNECT", level: 5, rows: disconnect5 },
];
