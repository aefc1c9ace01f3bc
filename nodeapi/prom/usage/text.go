// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Types of metrics.
const (
	counter = "counter"
	gauge   = "gauge"
)

// text is a page in the text format of Prometheus, version 0.0.4.
type text struct {
	buf  []byte
	name string // name of the current metric
}

// startFamily writes the header of a metric, and returns its position: the caller removes the header if the metric has no series.
func (t *text) startFamily(name, help, kind string) (begun int) {
	begun = len(t.buf)
	t.name = name
	t.buf = append(append(append(append(t.buf, "# HELP "...), name...), ' '), help...)
	t.buf = append(append(append(append(t.buf, "\n# TYPE "...), name...), ' '), kind...)
	t.buf = append(t.buf, '\n')
	return begun
}

// writeSeries writes one value. labels and more are results of formatLabel, joined by commas. A zero time writes no timestamp.
func (t *text) writeSeries(labels, more string, value float64, at time.Time) {
	t.buf = append(t.buf, t.name...)
	if labels != "" || more != "" {
		t.buf = append(append(t.buf, '{'), labels...)
		if labels != "" && more != "" {
			t.buf = append(t.buf, ',')
		}
		t.buf = append(append(t.buf, more...), '}')
	}
	t.buf = append(t.buf, ' ')
	t.buf = appendNumber(t.buf, value)
	if !at.IsZero() {
		t.buf = append(t.buf, ' ')
		t.buf = strconv.AppendInt(t.buf, at.UnixMilli(), 10)
	}
	t.buf = append(t.buf, '\n')
}

// appendNumber appends a value. It writes whole numbers, the most frequent ones, without searching for the shortest form.
func appendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

var escapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// formatLabel returns name="value" with escapes.
func formatLabel(name, value string) string {
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	return name + `="` + escapes.Replace(value) + `"`
}
