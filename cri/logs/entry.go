// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Stream is the output stream of a container: stdout or stderr.
type Stream string

// The streams of a container. A container with a terminal has only Stdout.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Entry is one line of a log file: a line of container output, or a piece of a long one.
type Entry struct {
	Time   time.Time // when the runtime read the output
	Stream Stream
	// Content is the output of the container. Only the last piece of a line ends with a newline. It may share memory with the
	// parsed line.
	Content []byte
}

// EndsLine reports whether the entry completes a line of the container's output.
func (e Entry) EndsLine() bool {
	return len(e.Content) == 0 || e.Content[len(e.Content)-1] == '\n'
}

// Format is the format of the lines of a log file.
type Format uint8

// The supported formats of log files.
const (
	FormatCRI        Format = iota + 1 // time, stream, tags and content, separated by spaces: containerd, CRI-O
	FormatDockerJSON                   // JSON object with log, stream and time: Docker's json-file driver
)

// Errors of a line. The unexported ones only differ in their text.
var (
	// ErrUnknownFormat means that a line, or every line of a log, has no known format.
	ErrUnknownFormat = errors.New("unknown log format")

	errTime   = errors.New("no RFC 3339 time at the start")
	errStream = errors.New("no stream: want stdout or stderr")
	errTag    = errors.New("no tag after the stream")
	errLong   = errors.New("line is too long")
)

// DetectFormat returns the format of a line, and so of the whole log file. It returns [ErrUnknownFormat] if no format matches.
func DetectFormat(line []byte) (Format, error) {
	for _, f := range []Format{FormatCRI, FormatDockerJSON} {
		if _, err := f.Parse(line); err == nil {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%w: %.64q", ErrUnknownFormat, line)
}

// Parse parses one line of a log file in format f. The newline at its end may be missing.
func (f Format) Parse(line []byte) (Entry, error) {
	switch f {
	case FormatCRI:
		return parseCRI(line)
	case FormatDockerJSON:
		return parseDockerJSON(line)
	}
	return Entry{}, ErrUnknownFormat
}

// parseCRI parses a line of the CRI log format, such as "2026-01-02T15:04:05.000000006Z stdout F hello".
func parseCRI(line []byte) (Entry, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Entry{}, errTime
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, errTime // err is dropped, because it quotes the whole line
	}
	name, rest, ok := bytes.Cut(rest, []byte{' '})
	stream := parseStream(name)
	if !ok || stream == "" {
		return Entry{}, errStream
	}
	tags, content, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Entry{}, errTag
	}
	// after tag P, the next entry of the stream continues the line; F ends it, and other tags are ignored
	if len(tags) > 0 && tags[0] == 'P' && (len(tags) == 1 || tags[1] == ':') {
		content = bytes.TrimSuffix(content, []byte{'\n'})
	}
	return Entry{Time: t, Stream: stream, Content: content}, nil
}

// parseStream returns the stream with this name, or "" for another name. It does not allocate.
func parseStream(name []byte) Stream {
	switch string(name) {
	case string(Stdout):
		return Stdout
	case string(Stderr):
		return Stderr
	}
	return ""
}

// parseDockerJSON parses a line of the log format of Docker, such as
//
//	{"log":"hello\n","stream":"stdout","time":"2026-01-02T15:04:05.000000006Z"}
func parseDockerJSON(line []byte) (Entry, error) {
	var object struct {
		Log    string    `json:"log"`
		Stream Stream    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &object); err != nil {
		return Entry{}, err
	}
	if object.Stream != Stdout && object.Stream != Stderr {
		return Entry{}, errStream
	}
	return Entry{Time: object.Time, Stream: object.Stream, Content: []byte(object.Log)}, nil
}
