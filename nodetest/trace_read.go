// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// readRecords calls add for each record of a trace.
func readRecords(r io.Reader, f *TraceFormat, add func(*traceRecord)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxTraceLine)
	p := traceParser{format: f, columns: f.Columns}
	records := 0
	number := 0
	for lines.Scan() {
		number++
		record, err := p.parseLine(lines.Bytes())
		switch {
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		case record == nil:
			continue
		}
		if records++; records > maxTraceRecords {
			return fmt.Errorf("line %d: more than %d records", number, maxTraceRecords)
		}
		add(record)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: more than %d bytes", number+1, maxTraceLine)
	} else if err != nil {
		return err
	}
	return nil
}

// traceParser parses the lines of a trace.
type traceParser struct {
	format  *TraceFormat
	columns []string             // of CSV; nil: not read yet
	index   map[string]int       // of the columns that are read
	record  traceRecord          // of the last line
	lookup  func(string) *string // value of a column in the present line; nil: it is missing
}

// parseLine returns the record in a line of a trace, or nil for a header or an empty line. The record is valid until the
// next call.
func (p *traceParser) parseLine(line []byte) (*traceRecord, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	if p.format.JSON {
		if err := p.readJSON(line); err != nil {
			return nil, err
		}
	} else if header, err := p.readCSV(string(line)); err != nil || header {
		return nil, err
	}
	r := &p.record
	if err := p.parseKey(); err != nil {
		return nil, err
	}
	seconds, err := p.parseNumber(p.format.Time, p.format.TimeUnit.Seconds(), maxTraceTime.Seconds())
	if err != nil {
		return nil, err
	}
	if math.IsNaN(seconds) {
		return nil, fmt.Errorf("column %q: is empty", p.format.Time)
	}
	r.at = time.Duration(seconds * float64(time.Second))
	for i, c := range p.format.amounts() {
		if r.amounts[i] = math.NaN(); c.Name == "" {
			continue
		}
		if r.amounts[i], err = p.parseNumber(c.Name, cmp.Or(c.Unit, 1), maxBytes); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// maxTraceTime is the latest time of a record. Seconds as a float64 keep microseconds up to it.
const maxTraceTime = 100 * 365 * 24 * time.Hour

// parseKey sets the key of the record.
func (p *traceParser) parseKey() error {
	parts := make([]string, len(p.format.Key))
	for i, name := range p.format.Key {
		value := p.lookup(name)
		if value == nil || *value == "" {
			return fmt.Errorf("column %q: is empty", name)
		}
		parts[i] = *value
	}
	p.record.key = strings.Join(parts, "/")
	return nil
}

// parseNumber returns the number in the column, multiplied by unit. An empty column yields NaN. A negative result, or a result greater than most, is
// an error.
func (p *traceParser) parseNumber(column string, unit, most float64) (float64, error) {
	text := p.lookup(column)
	if text == nil || *text == "" {
		return math.NaN(), nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(*text), 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("column %q: %q is no number", column, shortenText(*text))
	}
	if v *= unit; v < 0 || v > most {
		return 0, fmt.Errorf("column %q: %q is negative or too large", column, shortenText(*text))
	}
	return v, nil
}

// shortenText cuts text to 40 bytes for an error.
func shortenText(text string) string {
	if len(text) > 40 {
		return text[:40] + "..."
	}
	return text
}

// readCSV splits a CSV line, and sets p.lookup to a function that returns its values. header is true if the line is the
// header with the column names.
func (p *traceParser) readCSV(line string) (header bool, err error) {
	values := strings.Split(strings.TrimSuffix(line, "\r"), ",")
	if strings.Contains(line, `"`) {
		if values, err = csv.NewReader(strings.NewReader(line)).Read(); err != nil {
			return false, err
		}
	}
	if p.columns == nil {
		p.columns, header = values, true
	}
	if p.index == nil {
		if err := p.indexColumns(); err != nil {
			return false, err
		}
	}
	p.lookup = func(name string) *string {
		if i, ok := p.index[name]; ok && i < len(values) {
			return &values[i]
		}
		return nil
	}
	return header, nil
}

// indexColumns stores the position of each column in p.index. It returns an error if the file lacks a column that the format
// names.
func (p *traceParser) indexColumns() error {
	p.index = map[string]int{}
	for i, name := range p.columns {
		p.index[strings.TrimSpace(name)] = i
	}
	wanted := append([]string{p.format.Time}, p.format.Key...)
	for _, c := range p.format.amounts() {
		if c.Name != "" {
			wanted = append(wanted, c.Name)
		}
	}
	for _, name := range wanted {
		if _, ok := p.index[name]; !ok {
			return fmt.Errorf("no column %q", name)
		}
	}
	return nil
}

// readJSON parses a line as a JSON object, and sets p.lookup to a function that returns its fields.
func (p *traceParser) readJSON(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return err
	}
	p.lookup = func(name string) *string { return lookupField(object, strings.Split(name, ".")) }
	return nil
}

// lookupField returns the value at path in nested JSON objects as text. It returns nil if there is no such field, or if the
// value is an object.
func lookupField(object map[string]any, path []string) *string {
	switch v := object[path[0]].(type) {
	case map[string]any:
		if len(path) > 1 {
			return lookupField(v, path[1:])
		}
	case json.Number:
		if len(path) == 1 {
			return new(v.String())
		}
	case string:
		if len(path) == 1 {
			return &v
		}
	case nil:
	default:
		return new(fmt.Sprint(v)) // no number
	}
	return nil
}
