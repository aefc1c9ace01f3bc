// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

const stamp = "2016-10-20T18:39:20.57606443Z"

func parseTime(t testing.TB, s string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, s)
	require.NoError(t, err)
	return parsed
}

func TestParseCRI(t *testing.T) {
	for _, test := range []struct {
		name, line string
		stream     logs.Stream
		content    string
	}{
		{"full line", stamp + " stdout F hello world\n", logs.Stdout, "hello world\n"},
		{"stderr", stamp + " stderr F hello\n", logs.Stderr, "hello\n"},
		{"partial line without the newline of the file", stamp + " stdout P hello\n", logs.Stdout, "hello"},
		{"partial line loses only the newline", stamp + " stdout P hello\r\n", logs.Stdout, "hello\r"},
		{"empty", stamp + " stdout F \n", logs.Stdout, "\n"},
		{"empty piece", stamp + " stdout P \n", logs.Stdout, ""},
		{"unfinished line without newline", stamp + " stdout F hel", logs.Stdout, "hel"},
		{"more tags", stamp + " stdout P:TAG1:TAG2 hello\n", logs.Stdout, "hello"},
		{"only the first tag counts", stamp + " stdout F:P hello\n", logs.Stdout, "hello\n"},
		{"unknown tag means full line", stamp + " stdout X hello\n", logs.Stdout, "hello\n"},
		{"tag that begins with P means full line", stamp + " stdout PART hello\n", logs.Stdout, "hello\n"},
		{"empty tag means full line", stamp + " stdout  hello\n", logs.Stdout, "hello\n"},
		{"spaces are part of the content", stamp + " stdout F  a  b \n", logs.Stdout, " a  b \n"},
		{"not text", stamp + " stdout F \x00\xff\n", logs.Stdout, "\x00\xff\n"},
		{"time with an offset", "2016-10-20T20:39:20.57606443+02:00 stdout F hello\n", logs.Stdout, "hello\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := logs.FormatCRI.Parse([]byte(test.line))
			require.NoError(t, err)
			assert.True(t, e.Time.Equal(parseTime(t, stamp)), "time %v", e.Time)
			assert.Equal(t, test.stream, e.Stream)
			assert.Equal(t, test.content, string(e.Content))
		})
	}
}

func TestParseDockerJSON(t *testing.T) {
	e, err := logs.FormatDockerJSON.Parse([]byte(`{"log":"a\u003cb\n","stream":"stderr","time":"` + stamp + `"}` + "\n"))
	require.NoError(t, err)
	assert.Equal(t, logs.Entry{Time: parseTime(t, stamp), Stream: logs.Stderr, Content: []byte("a<b\n")}, e)
	assert.True(t, e.EndsLine())

	e, err = logs.FormatDockerJSON.Parse([]byte(`{"log":"a","stream":"stdout","time":"` + stamp + `"}`))
	require.NoError(t, err)
	assert.False(t, e.EndsLine(), "a partial line does not end a line")
}

func TestParseRejectsMalformedLines(t *testing.T) {
	for _, line := range []string{
		"", "\n", "hello\n", stamp, stamp + " ", stamp + " stdout", stamp + " stdout F", stamp + " stdout F\n",
		stamp + " stdin F hello\n", stamp + "  F hello\n", "20-Oct-2016 stdout F hello\n", " " + stamp + " stdout F hello\n",
		`{"log":"a","stream":"stdin","time":"` + stamp + `"}`, `{"log":"a","stream":"stdout","time":"now"}`,
		`{"log":"a","stream":"stdout"`, "{}", "null", `"stdout"`,
	} {
		_, err := logs.FormatCRI.Parse([]byte(line))
		assert.Error(t, err, "CRI.Parse(%q)", line)
		_, err = logs.FormatDockerJSON.Parse([]byte(line))
		assert.Error(t, err, "DockerJSON.Parse(%q)", line)
		_, err = logs.DetectFormat([]byte(line))
		assert.ErrorIs(t, err, logs.ErrUnknownFormat, "Detect(%q)", line)
	}
}

func TestDetectFormat(t *testing.T) {
	f, err := logs.DetectFormat([]byte(stamp + " stdout F {}\n"))
	require.NoError(t, err)
	assert.Equal(t, logs.FormatCRI, f)
	f, err = logs.DetectFormat([]byte(`{"log":"a","stream":"stdout","time":"` + stamp + `"}`))
	require.NoError(t, err)
	assert.Equal(t, logs.FormatDockerJSON, f)

	_, err = logs.DetectFormat(bytes.Repeat([]byte("x"), 1<<20))
	assert.Less(t, len(err.Error()), 200, "the error quotes a bounded part of the line")
	_, err = logs.Format(0).Parse([]byte(stamp + " stdout F a\n"))
	assert.ErrorIs(t, err, logs.ErrUnknownFormat)
}

func TestParseCRIAllocatesNothing(t *testing.T) {
	line := []byte("2016-10-20T18:39:20.576064430Z stdout F hello\n")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := logs.FormatCRI.Parse(line); err != nil {
			t.Error(err)
		}
	}))
}

// The parser agrees with a naive parser, and parses the lines that a runtime writes.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(stamp + " stdout F hello\n"))
	f.Add([]byte(stamp + " stderr P:x hello\n"))
	f.Add([]byte(stamp + " stdout F"))
	f.Add([]byte(`{"log":"a","stream":"stdout","time":"` + stamp + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		before := slices.Clone(line)
		e, err := logs.FormatCRI.Parse(line)
		require.Equal(t, before, line, "the parser does not modify the line")

		parts := strings.SplitN(string(line), " ", 4)
		stamp, timeErr := time.Parse(time.RFC3339Nano, parts[0])
		good := len(parts) == 4 && timeErr == nil && (parts[1] == "stdout" || parts[1] == "stderr")
		require.Equal(t, good, err == nil, "CRI.Parse(%q): %v", line, err)
		if good {
			content := parts[3]
			if strings.Split(parts[2], ":")[0] == "P" {
				content = strings.TrimSuffix(content, "\n")
			}
			require.Equal(t, logs.Entry{Time: stamp, Stream: logs.Stream(parts[1]), Content: []byte(content)}, e)
		}

		written := []byte("2016-10-20T18:39:20.57606443Z stderr P " + string(line) + "\n")
		e, err = logs.FormatCRI.Parse(written)
		require.NoError(t, err)
		require.Equal(t, string(line), string(e.Content))

		if e, err := logs.FormatDockerJSON.Parse(line); err == nil {
			require.Contains(t, []logs.Stream{logs.Stdout, logs.Stderr}, e.Stream)
		}
	})
}
