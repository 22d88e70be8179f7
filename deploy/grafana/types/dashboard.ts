// Our dashboards by Grafana's own types, stricter where Grafana takes any options.
import type { Dashboard, FieldConfigSource, Panel } from "@grafana/schema";
import type {
  FieldConfig as GraphFieldConfig,
  Options as GraphOptions,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";

// JSON has the values of enumerations, not their names.
type Values<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends (infer U)[]
      ? Values<U>[]
      : T extends object
        ? { [K in keyof T]: Values<T[K]> }
        : T;

interface PrometheusSource {
  type: "prometheus";
  uid: string;
}

interface PrometheusTarget {
  refId: string;
  datasource: PrometheusSource;
  expr: string;
  legendFormat: string;
}

type PanelOf<Kind extends string, Options, Custom> = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Kind;
  title: string;
  datasource: PrometheusSource;
  options: Options;
  fieldConfig: FieldConfigSource<Custom>;
  targets: PrometheusTarget[];
};

type OurPanel = PanelOf<"timeseries", GraphOptions, GraphFieldConfig> | PanelOf<"stat", StatOptions, object>;

export type OurDashboard = Values<Omit<Dashboard, "panels"> & { uid: string; title: string; panels: OurPanel[] }>;
