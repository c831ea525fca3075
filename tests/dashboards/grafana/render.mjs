// Shows panels as Grafana does, with Grafana's own transformations, field overrides, value mappings, units and links.
//
// given.json: [{key, panel, answers: {A: {resultType, result}}}], the answers of Prometheus' API by refId.
// shown.json: [{key, error, title, cells: [{at, text, color, links}], unknown: [property, ...]}].
//
// Grafana's backend makes frames of Prometheus' JSON and is not on npm; `frames` and `table` repeat what it and
// @grafana/prometheus (result_transformer.ts, transformDFToTable) do. Panels themselves are not on npm either: `cells`
// has what stat, table, time series and timelines take from the same functions.
import {
  FieldType, applyFieldOverrides, createTheme, getFieldDisplayName, getFieldDisplayValues, standardEditorsRegistry,
  standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry, transformDataFrame,
  booleanOverrideProcessor, dataLinksOverrideProcessor, displayNameOverrideProcessor, identityOverrideProcessor,
  numberOverrideProcessor, stringOverrideProcessor, thresholdsOverrideProcessor, unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import { readFileSync, writeFileSync } from 'node:fs';

const theme = createTheme();
const PROCESSORS = {
  unit: unitOverrideProcessor, decimals: numberOverrideProcessor, min: numberOverrideProcessor,
  max: numberOverrideProcessor, displayName: displayNameOverrideProcessor, noValue: stringOverrideProcessor,
  color: identityOverrideProcessor, links: dataLinksOverrideProcessor, mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor, filterable: booleanOverrideProcessor,
};
// Of the panels' own properties, those that the boards use: `custom.lineWdth` would have no effect, silently.
const CUSTOM = [
  'cellOptions', 'width', 'align', 'lineStyle', 'lineWidth', 'fillOpacity', 'drawStyle', 'lineInterpolation',
  'showPoints', 'spanNulls', 'insertNulls', 'stacking', 'thresholdsStyle', 'hideFrom',
];

globalThis.window ??= globalThis;
globalThis.navigator ??= { language: 'en', languages: ['en'] };
const transformers = new Map(Object.values(standardTransformers).map((each) => [each.id, each]));
standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((each) => ({ id: each.id, name: each.name, transformation: each })));
const editor = (path, process, isCustom) => ({
  id: isCustom ? `custom.${path}` : path, path, name: path, isCustom, process, shouldApply: () => true,
  getItemsCount: () => 0, editor: () => null, override: () => null,
});
standardEditorsRegistry.setInit(() => []);
standardFieldConfigEditorRegistry.setInit(() => [
  ...Object.entries(PROCESSORS).map(([id, process]) => editor(id, process, false)),
  ...CUSTOM.map((id) => editor(id, identityOverrideProcessor, true)),
]);

// Board variables have no value here; a field of a row has.
function replaceVariables(text, scoped) {
  return String(text).replace(/\$\{(__data\.fields\.(\w+)|[\w:]+)\}/g, (all, name, field) => {
    const context = scoped?.__dataContext?.value;
    if (field === undefined || context === undefined) return 'x';
    const found = context.frame.fields.find((each) => each.name === field);
    return found === undefined ? 'undefined' : String(found.values[context.rowIndex]);
  });
}

function legend(target, labels) {
  const format = target.legendFormat;
  if (format === undefined || format === '__auto') return undefined;
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

function frames(target, answer) {
  const result = answer?.result ?? [];
  if (result.length === 0) return [{ refId: target.refId, fields: [], length: 0 }];
  return result.map(({ metric: { __name__, ...labels }, value, values }) => {
    const points = values ?? [value];
    const name = legend(target, labels);
    return {
      refId: target.refId, name, length: points.length,
      fields: [
        { name: 'Time', type: FieldType.time, config: {}, values: points.map(([at]) => at * 1000) },
        {
          name: __name__ ?? 'Value', type: FieldType.number, labels, config: { displayNameFromDS: name },
          values: points.map(([, number]) => Number(number.replace('Inf', 'Infinity'))),
        },
      ],
    };
  });
}

function table(byTarget) {
  if (byTarget.length === 1 && byTarget[0].every((each) => each.length === 0)) return byTarget[0];
  return byTarget.map((ofTarget) => {
    const refId = ofTarget[0].refId;
    const series = ofTarget.filter((each) => each.length > 0);
    const labels = [...new Set(series.flatMap((each) => Object.keys(each.fields[1].labels).sort()))];
    const column = (name, type, values) => ({ name, type, config: {}, values });
    return {
      refId, length: series.length,
      fields: [
        column('Time', FieldType.time, series.map((each) => each.fields[0].values[0])),
        ...labels.map((label) =>
          column(label, FieldType.string, series.map((each) => each.fields[1].labels[label] ?? ''))),
        column(byTarget.length > 1 ? `Value #${refId}` : 'Value', FieldType.number,
          series.map((each) => each.fields[1].values[0])),
      ],
    };
  });
}

async function shown(panel, answers) {
  const byTarget = panel.targets.map((target) => frames(target, answers[target.refId]));
  const raw = panel.type === 'table' ? table(byTarget) : byTarget.flat();
  for (const { id } of panel.transformations ?? []) {
    if (standardTransformersRegistry.getIfExists(id) === undefined) throw new Error(`no transformation ${id}`);
  }
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], raw));
  const data = applyFieldOverrides({
    data: transformed, fieldConfig: panel.fieldConfig, replaceVariables, theme, timeZone: 'utc',
    fieldConfigRegistry: standardFieldConfigEditorRegistry,
  });
  return panel.type === 'stat' ? statCells(panel, data) : fieldCells(panel, data);
}

function statCells(panel, data) {
  return getFieldDisplayValues({
    data, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables, theme,
    timeZone: 'utc',
  }).map(({ display }) => cell('', display));
}

function cell(at, { prefix = '', text, suffix = '', color }, links = []) {
  return { at, text: `${prefix}${text}${suffix}`, color, links };
}

function fieldCells(panel, data) {
  const cells = [];
  for (const frame of data) {
    const rows = frame.fields[0]?.values.length ?? 0;
    if (rows === 0) continue;
    for (const field of frame.fields) {
      if (field.type === FieldType.time && panel.type !== 'table') continue;
      const name = getFieldDisplayName(field, frame, data);
      for (let row = 0; row < rows; row += 1) {
        const links = field.getLinks?.({ valueRowIndex: row }).map(({ href }) => href) ?? [];
        cells.push(cell(name, field.display(field.values[row]), links));
      }
    }
  }
  return cells;
}

function unknownProperties(panel) {
  const ids = panel.fieldConfig.overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  return [...new Set(ids)].filter((id) => standardFieldConfigEditorRegistry.getIfExists(id) === undefined);
}

const [given, shownFile] = process.argv.slice(2);
const out = [];
for (const { key, panel, answers } of JSON.parse(readFileSync(given, 'utf-8'))) {
  const about = { key, title: panel.title, error: null, cells: [], unknown: unknownProperties(panel) };
  try {
    about.cells = await shown(panel, answers);
  } catch (error) {
    about.error = String(error.stack ?? error);
  }
  out.push(about);
}
writeFileSync(shownFile, JSON.stringify(out));
