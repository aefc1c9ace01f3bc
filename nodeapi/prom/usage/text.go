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

// Types of families.
const (
	counter = "counter"
	gauge   = "gauge"
)

// text is a page in the text format of Prometheus, version 0.0.4.
type text struct {
	buf  []byte
	name string // of the family that is being written
}

// family begins a family. A family without series has no header either, see end.
func (t *text) startFamily(name, help, kind string) (begun int) {
	begun = len(t.buf)
	t.name = name
	t.buf = append(append(append(append(t.buf, "# HELP "...), name...), ' '), help...)
	t.buf = append(append(append(append(t.buf, "\n# TYPE "...), name...), ' '), kind...)
	t.buf = append(t.buf, '\n')
	return begun
}

// series writes one value. The labels are as [label] makes them, without braces; a zero time is none.
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

// number writes a value; whole ones, of which there are most, without the search for the shortest form.
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

// label returns a label with its value.
func formatLabel(name, value string) string {
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	return name + `="` + escapes.Replace(value) + `"`
}
