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

// Types of metrics in the text format.
const (
	counter = "counter"
	gauge   = "gauge"
)

// text is a page in the text format of Prometheus, version 0.0.4.
type text struct {
	buf  []byte
	name string // name of the current metric
}

// startFamily appends the header of a metric, and returns its position, so that the header of an empty metric can be removed.
func (t *text) startFamily(name, help, kind string) (start int) {
	start = len(t.buf)
	t.name = name
	t.buf = append(append(append(append(t.buf, "# HELP "...), name...), ' '), help...)
	t.buf = append(append(append(append(t.buf, "\n# TYPE "...), name...), ' '), kind...)
	t.buf = append(t.buf, '\n')
	return start
}

// writeSeries appends one series of the current metric. labels and more are label lists of formatLabel, and may be empty. A zero
// timestamp is omitted.
func (t *text) writeSeries(labels, more string, value float64, timestamp time.Time) {
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
	if !timestamp.IsZero() {
		t.buf = append(t.buf, ' ')
		t.buf = strconv.AppendInt(t.buf, timestamp.UnixMilli(), 10)
	}
	t.buf = append(t.buf, '\n')
}

// appendNumber appends a number in its shortest form. Whole numbers are most frequent, and have a faster path.
func appendNumber(buf []byte, value float64) []byte {
	switch {
	case math.IsInf(value, 1):
		return append(buf, "+Inf"...)
	case value == math.Trunc(value) && math.Abs(value) < 1<<53:
		return strconv.AppendInt(buf, int64(value), 10)
	}
	return strconv.AppendFloat(buf, value, 'g', -1, 64)
}

var escapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

// formatLabel returns name="value" with escapes.
func formatLabel(name, value string) string {
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	return name + `="` + escapes.Replace(value) + `"`
}
