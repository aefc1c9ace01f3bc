// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// series is a time series of a metric family, or one number of a summary.
type series struct{ family, of string }

// reading is a value and the time of its measurement.
type reading struct {
	value float64
	at    time.Time
}

// readings are the values of one page.
type readings map[series]reading

// parsePage parses a metrics page. A value without a time stamp gets the time now.
func parsePage(page io.Reader, now time.Time) (readings, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, err
	}
	all := readings{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			at := now
			if m.TimestampMs != nil {
				at = time.UnixMilli(m.GetTimestampMs())
			}
			all[series{name, labelsOf(m)}] = reading{valueOf(m), at}
		}
	}
	return all, nil
}

// keepBelow drops the values of cgroups other than the root cgroup and those below one cgroup.
func (all readings) keepBelow(below string) {
	for s := range all {
		for label := range strings.SplitSeq(s.of, ",") {
			if id, ok := strings.CutPrefix(label, "id="); ok && id != "/" && !strings.HasPrefix(id, strings.TrimSuffix(below, "/")+"/") {
				delete(all, s)
			}
		}
	}
}

func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func labelsOf(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

func encode(v any) (io.Reader, error) {
	text, err := json.Marshal(v)
	return bytes.NewReader(text), err
}

// parseSummary returns the numbers of a stats summary. The family is the path to a number without names, such as
// pods.containers.cpu.usageNanoCores.
func parseSummary(page io.Reader, now time.Time) (readings, error) {
	var root any
	if err := json.NewDecoder(page).Decode(&root); err != nil {
		return nil, err
	}
	all := readings{}
	all.addNumbers(root, "", "", now)
	return all, nil
}

// addNumbers adds the numbers below a part of a summary.
func (all readings) addNumbers(part any, path, of string, at time.Time) {
	switch part := part.(type) {
	case float64:
		all[series{path, of}] = reading{part, at}
	case []any:
		for _, element := range part {
			all.addNumbers(element, path, of+"/"+nameOf(element), at)
		}
	case map[string]any:
		if text, ok := part["time"].(string); ok {
			if measured, err := time.Parse(time.RFC3339, text); err == nil {
				at = measured
			}
		}
		for key, value := range part {
			if key != "podRef" {
				all.addNumbers(value, strings.TrimPrefix(path+"."+key, "."), of, at)
			}
		}
	}
}

// nameOf returns the identifying name of an element of a list.
func nameOf(element any) string {
	fields, _ := element.(map[string]any)
	if ref, ok := fields["podRef"].(map[string]any); ok {
		return fmt.Sprint(ref["uid"])
	}
	return fmt.Sprint(fields["name"])
}
