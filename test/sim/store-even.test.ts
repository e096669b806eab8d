import { testHistories } from "../support/store-histories.ts";

testHistories(0);
