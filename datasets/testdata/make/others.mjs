// Writes the test files of datasets of other writers: DuckDB, Polars, arrow-rs (parquet-wasm) and
// hyparquet-writer, all with the rows of rows.jsonl.
//
//	npm install @duckdb/node-api@1.5.6-r.1 nodejs-polars@0.26.1 parquet-wasm@0.8.0 apache-arrow@21.2.0 hyparquet-writer@0.17.0
//	node others.mjs ..
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import pl from "nodejs-polars";
import * as arrow from "apache-arrow";
import { parquetWriteBuffer } from "hyparquet-writer";

const wasm = createRequire(import.meta.url)("parquet-wasm");
const out = (name) => join(process.argv[2], "others", name);
const rows = readFileSync(join(process.argv[2], "rows.jsonl"), "utf8").trim().split("\n").map(JSON.parse);
const column = (name) => rows.map((r) => r[name]);

const db = await (await DuckDBInstance.create(":memory:")).connect();
await db.run("set threads = 1");
await db.run(`create table r as select * from read_json('${join(process.argv[2], "rows.jsonl")}', columns = {id: 'BIGINT', tags: 'VARCHAR[]', text: 'VARCHAR'})`);
await db.run(`copy (select id,
	case when id % 4 = 0 and text is null then null else {more: {tags: tags, text: text}, text: text} end as doc,
	[{role: 'user', content: text}] as messages, {text: tags} as list from r) to '${join(process.argv[2], "struct/duckdb.parquet")}' (format parquet)`);
for (const [name, options] of Object.entries({
	"duckdb.parquet": "format parquet",
	"duckdb-v2-zstd.parquet": "format parquet, parquet_version v2, compression zstd, row_group_size 2048",
	"duckdb-lz4.parquet": "format parquet, compression lz4_raw",
	"duckdb-array.json": "format json, array true",
	"duckdb.jsonlines": "format json",
})) {
	await db.run(`copy (from r) to '${out(name)}' (${options})`);
}

const frame = pl.DataFrame({ id: column("id"), tags: pl.Series("tags", column("tags"), pl.List(pl.Utf8)), text: pl.Series("text", column("text"), pl.Utf8) });
frame.writeParquet(out("polars.parquet"));
frame.writeParquet(join(process.argv[2], "struct/polars-brotli.parquet"), { compression: "brotli" });
if (const categories = frame.withColumns(pl.col("text").cast(pl.Categorical));
categories.writeParquet(out("polars-categorical.parquet"));

const table = (kind) => new arrow.Table({
	id: arrow.vectorFromArray(column("id"), new arrow.Int32()),
	tags: arrow.vectorFromArray(column("tags"), new arrow.List(new arrow.Field("item", new arrow.Utf8(), true))),
	text: arrow.vectorFromArray(column("text"), kind),
});
for (const name of ["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW"]) {
	const properties = new wasm.WriterPropertiesBuilder().setCompression(wasm.Compression[name]).setMaxRowGroupSize(40).build();
	writeFileSync(out(`wasm-${name.toLowerCase()}.parquet`), wasm.writeParquet(wasm.Table.fromIPCStream(arrow.tableToIPC(table(new arrow.Utf8()), "stream")), properties));
}
writeFileSync(out("wasm-dictionary.parquet"), wasm.writeParquet(wasm.Table.fromIPCStream(arrow.tableToIPC(table(new arrow.Dictionary(new arrow.Utf8(), new arrow.Int16())), "stream"))));
writeFileSync(out("hyparquet.parquet"), Buffer.from(parquetWriteBuffer({ columnData: [
	{ name: "id", data: column("id"), type: "INT32" }, { name: "tags", data: column("tags"), type: "JSON" }, { name: "text", data: column("text"), type: "STRING", nullable: true },
] })));
