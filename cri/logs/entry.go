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

// Stream is what a container wrote to.
type Stream string

// The streams of a container. With a terminal there is only Stdout.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Entry is one line of a log file: a line that a container wrote, or a piece of one.
type Entry struct {
	Time   time.Time // when the runtime read it from the container
	Stream Stream
	// Content is what the container wrote. Only the last piece of a line ends with a newline. It may share memory
	// with the line that was parsed.
	Content []byte
}

// EndsLine reports whether the next entry begins a new line.
func (e Entry) EndsLine() bool {
	return len(e.Content) == 0 || e.Content[len(e.Content)-1] == '\n'
}

// Format is how entries are written down.
type Format uint8

// The formats of log files.
const (
	FormatCRI        Format = iota + 1 // time, stream, tags and content with spaces between: containerd, CRI-O
	FormatDockerJSON                   // an object with log, stream and time: the json-file driver of Docker
)

// What may be wrong with a line. The others are for people to tell apart, and not exported.
var (
	// ErrUnknownFormat says that a line, or all of a log, is in no known format.
	ErrUnknownFormat = errors.New("unknown log format")

	errTime   = errors.New("no RFC 3339 time at the start")
	errStream = errors.New("no stream: want stdout or stderr")
	errTag    = errors.New("no tag after the stream")
	errLong   = errors.New("line is too long")
)

// DetectFormat returns the format that a line is in, and so the log it is from, or [ErrUnknownFormat].
func DetectFormat(line []byte) (Format, error) {
	for _, f := range []Format{FormatCRI, FormatDockerJSON} {
		if _, err := f.Parse(line); err == nil {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%w: %.64q", ErrUnknownFormat, line)
}

// Parse reads one line, with or without its newline.
func (f Format) Parse(line []byte) (Entry, error) {
	switch f {
	case FormatCRI:
		return parseCRI(line)
	case FormatDockerJSON:
		return parseDockerJSON(line)
	}
	return Entry{}, ErrUnknownFormat
}

// parseCRI reads a line such as
//
//	2026-01-02T15:04:05.000000006Z stdout F hello
//
// The first of the tags, which colons separate, is P when the line goes on in the next entry of the stream; the
// newline of such an entry belongs to the file and not to the content. Other tags mean nothing yet.
func parseCRI(line []byte) (Entry, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Entry{}, errTime
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, errTime // and not err: it quotes a line of any length
	}
	name, rest, ok := bytes.Cut(rest, []byte{' '})
	stream := known(name)
	if !ok || stream == "" {
		return Entry{}, errStream
	}
	tags, content, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Entry{}, errTag
	}
	if len(tags) > 0 && tags[0] == 'P' && (len(tags) == 1 || tags[1] == ':') {
		content = bytes.TrimSuffix(content, []byte{'\n'})
	}
	return Entry{Time: t, Stream: stream, Content: content}, nil
}

// known returns the stream of this name, without a copy of the name, or "".
func known(name []byte) Stream {
	switch string(name) {
	case string(Stdout):
		return Stdout
	case string(Stderr):
		return Stderr
	}
	return ""
}

// parseDockerJSON reads a line such as
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
