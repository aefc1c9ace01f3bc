// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// writeLog writes a log file and returns its path.
func writeLog(t testing.TB, path string, lines ...string) string {
	t.Helper()
	data := []byte(strings.Join(lines, ""))
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(data)
		require.NoError(t, errors.Join(err, z.Close()))
		data = b.Bytes()
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// readLog returns the output of Read per stream.
func readLog(t testing.TB, path string, o logs.ReadOptions) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	require.NoError(t, logs.Read(t.Context(), path, &out, &err, o))
	return out.String(), err.String()
}

// sample has three lines, of which the second consists of two entries, and one line of stderr.
var sample = []string{
	"2016-10-20T18:39:20.1Z stdout F line1\n",
	"2016-10-20T18:39:21Z stdout P li\n",
	"2016-10-20T18:39:22Z stdout F ne2\n",
	"2016-10-20T18:39:23Z stderr F oops\n",
	"2016-10-20T18:39:24Z stdout F line3\n",
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name           string
		o              logs.ReadOptions
		stdout, stderr string
	}{
		{"all", logs.ReadOptions{}, "line1\nline2\nline3\n", "oops\n"},
		{"tail counts entries, not joined lines", logs.ReadOptions{TailLines: new(int64(3))}, "ne2\nline3\n", "oops\n"},
		{"tail of one entry", logs.ReadOptions{TailLines: new(int64(1))}, "line3\n", ""},
		{"tail of no entry", logs.ReadOptions{TailLines: new(int64(0))}, "", ""},
		{"tail of more entries than exist", logs.ReadOptions{TailLines: new(int64(100))}, "line1\nline2\nline3\n", "oops\n"},
		{"negative tail means all entries", logs.ReadOptions{TailLines: new(int64(-1))}, "line1\nline2\nline3\n", "oops\n"},
		{"since includes its own time", logs.ReadOptions{Since: parseTime(t, "2016-10-20T18:39:22Z")}, "ne2\nline3\n", "oops\n"},
		{"tail and since", logs.ReadOptions{TailLines: new(int64(2)), Since: parseTime(t, "2016-10-20T18:39:24Z")}, "line3\n", ""},
		{"limit", logs.ReadOptions{LimitBytes: new(int64(9))}, "line1\nlin", ""},
		{"limit of no byte", logs.ReadOptions{LimitBytes: new(int64(0))}, "", ""},
		{
			"timestamps at the start of lines",
			logs.ReadOptions{Timestamps: true},
			"2016-10-20T18:39:20.100000000Z line1\n2016-10-20T18:39:21.000000000Z line2\n2016-10-20T18:39:24.000000000Z line3\n",
			"2016-10-20T18:39:23.000000000Z oops\n",
		},
		{
			"limit counts timestamps",
			logs.ReadOptions{Timestamps: true, LimitBytes: new(int64(33))},
			"2016-10-20T18:39:20.100000000Z li", "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeLog(t, filepath.Join(t.TempDir(), "0.log"), sample...)
			stdout, stderr := readLog(t, path, test.o)
			assert.Equal(t, test.stdout, stdout)
			assert.Equal(t, test.stderr, stderr)
		})
	}
}

func TestReadReturnsUnfinishedLastLine(t *testing.T) {
	path := writeLog(t, filepath.Join(t.TempDir(), "0.log"), append(sample, "2016-10-20T18:39:25Z stdout F tor")...)
	out, _ := readLog(t, path, logs.ReadOptions{})
	assert.Equal(t, "line1\nline2\nline3\ntor", out)
	out, _ = readLog(t, path, logs.ReadOptions{TailLines: new(int64(1))})
	assert.Equal(t, "line3\n", out, "the tail ends before the unfinished line")
}

func TestReadKeepsOrderForOneWriter(t *testing.T) {
	var both bytes.Buffer
	path := writeLog(t, filepath.Join(t.TempDir(), "0.log"), sample...)
	require.NoError(t, logs.Read(t.Context(), path, &both, &both, logs.ReadOptions{}))
	assert.Equal(t, "line1\nline2\noops\nline3\n", both.String())
}

func TestReadDropsStreamWithoutWriter(t *testing.T) {
	path := writeLog(t, filepath.Join(t.TempDir(), "0.log"), sample...)
	var b bytes.Buffer
	require.NoError(t, logs.Read(t.Context(), path, nil, &b, logs.ReadOptions{LimitBytes: new(int64(4))}))
	assert.Equal(t, "oops", b.String(), "a dropped stream does not count against the limit")
}

func TestReadSkipsMalformedLines(t *testing.T) {
	path := writeLog(t, filepath.Join(t.TempDir(), "0.log"), "\x00\x00\n", sample[0], "what?\n",
		"2016-10-20T18:39:21Z stdout F "+strings.Repeat("x", 17<<20)+"\n", sample[4])
	var skipped []string
	out, _ := readLog(t, path, logs.ReadOptions{LineSkipped: func(line []byte, cause error) {
		skipped = append(skipped, fmt.Sprintf("%.10q: %v", line, cause))
	}})
	assert.Equal(t, "line1\nline3\n", out)
	assert.Equal(t, []string{
		`"\x00\x00\n": unknown log format: "\x00\x00\n"`,
		`"what?\n": no RFC 3339 time at the start`,
		`"2016-10-20": line is too long`,
	}, skipped)
}

func TestDockerLog(t *testing.T) {
	path := writeLog(t, filepath.Join(t.TempDir(), "x-json.log"),
		`{"log":"line1\n","stream":"stdout","time":"2016-10-20T18:39:20Z"}`+"\n",
		`{"log":"li","stream":"stdout","time":"2016-10-20T18:39:21Z"}`+"\n",
		`{"log":"ne2\n","stream":"stdout","time":"2016-10-20T18:39:22Z"}`+"\n",
		`{"log":"from nowhere\n","stream":"other","time":"2016-10-20T18:39:22Z"}`+"\n",
		`{"log":"oops\n","stream":"stderr","time":"2016-10-20T18:39:23Z"}`+"\n")
	stdout, stderr := readLog(t, path, logs.ReadOptions{Timestamps: true})
	assert.Equal(t, "2016-10-20T18:39:20.000000000Z line1\n2016-10-20T18:39:21.000000000Z line2\n", stdout)
	assert.Equal(t, "2016-10-20T18:39:23.000000000Z oops\n", stderr)
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	path := writeLog(t, filepath.Join(dir, "0.log"), "syslog\n", "and more\n")
	err := logs.Read(t.Context(), path, io.Discard, nil, logs.ReadOptions{})
	assert.ErrorIs(t, err, logs.ErrUnknownFormat)
	assert.ErrorContains(t, err, path)
	assert.ErrorContains(t, err, "syslog")

	err = logs.Read(t.Context(), filepath.Join(dir, "1.log"), io.Discard, nil, logs.ReadOptions{})
	assert.ErrorIs(t, err, os.ErrNotExist)

	err = logs.Read(t.Context(), path, io.Discard, nil, logs.ReadOptions{LimitBytes: new(int64(-1))})
	assert.ErrorContains(t, err, "LimitBytes -1")

	writeLog(t, path, sample...)
	broken, w := io.Pipe()
	broken.Close()
	err = logs.Read(t.Context(), path, w, nil, logs.ReadOptions{})
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestEmptyLog(t *testing.T) {
	path := writeLog(t, filepath.Join(t.TempDir(), "0.log"))
	out, _ := readLog(t, path, logs.ReadOptions{})
	assert.Empty(t, out)
	out, _ = readLog(t, path, logs.ReadOptions{TailLines: new(int64(5))})
	assert.Empty(t, out)
}

// If both forms of a rotated file exist, rotation removes the plain one, and ListFiles returns the compressed one.
func TestListFilesReturnsCompressedForm(t *testing.T) {
	dir := t.TempDir()
	path := writeLog(t, filepath.Join(dir, "0.log"), sample[1])
	name := "0.log.20161020-183921"
	writeLog(t, filepath.Join(dir, name), sample[0])
	writeLog(t, filepath.Join(dir, name+".gz"), sample[0])
	files, err := logs.ListFiles(path)
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, name+".gz"), path}, files)

	steps := logs.Policy{}.Plan("0.log", []logs.File{{Name: "0.log"}, {Name: name}, {Name: name + ".gz"}}, time.Now())
	assert.Equal(t, []logs.Action{{Op: logs.OpRemove, File: name}}, steps)
}

func TestReadIncludesRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	path := writeLog(t, filepath.Join(dir, "0.log"), sample[4])
	writeLog(t, path+".20161020-183921.gz", sample[0])
	writeLog(t, path+".20161020-183922", sample[1], sample[2])
	writeLog(t, path+".20161020-183922_001", sample[3])
	writeLog(t, path+".20161020-183922.tmp", "half of a compressed file")
	writeLog(t, path+".bak", "of somebody else\n")
	writeLog(t, filepath.Join(dir, "0.logs"), "of somebody else\n")

	files, err := logs.ListFiles(path)
	require.NoError(t, err)
	assert.Equal(t, []string{
		path + ".20161020-183921.gz", path + ".20161020-183922", path + ".20161020-183922_001", path,
	}, files)

	out, _ := readLog(t, path, logs.ReadOptions{})
	assert.Equal(t, "line3\n", out, "by default only the current file is read, like in the kubelet")
	out, errs := readLog(t, path, logs.ReadOptions{IncludeRotated: true})
	assert.Equal(t, "line1\nline2\nline3\n", out)
	assert.Equal(t, "oops\n", errs)
	all := "line1\nline2\nline3\n"
	for n, want := range []string{"", "line3\n", "line3\n", "ne2\nline3\n", "line2\nline3\n", all, all} {
		out, _ = readLog(t, path, logs.ReadOptions{IncludeRotated: true, TailLines: new(int64(n))})
		assert.Equal(t, want, out, "tail of %d", n)
	}
	require.NoError(t, os.WriteFile(path+".20161020-183921.gz", []byte("not compressed"), 0o600))
	err = logs.Read(t.Context(), path, io.Discard, nil, logs.ReadOptions{IncludeRotated: true})
	assert.ErrorContains(t, err, "20161020-183921.gz")
}

// Read agrees with a naive reader for random logs and options.
func TestReadAgreesWithNaiveReader(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "0.log")
	start := parseTime(t, stamp)
	for range 300 {
		lines := randomLog(rng, start)
		o := logs.ReadOptions{Timestamps: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			o.TailLines = new(rng.Int64N(30) - 1)
		}
		if rng.IntN(2) == 0 {
			o.LimitBytes = new(rng.Int64N(300))
		}
		if rng.IntN(2) == 0 {
			o.Since = start.Add(time.Duration(rng.IntN(20)) * time.Second)
		}
		var stdout, stderr io.Writer
		var both, want bytes.Buffer
		wanted := rng.IntN(4)
		if wanted != 1 {
			stdout = &both
		}
		if wanted != 2 {
			stderr = &both
		}
		writeLog(t, path, lines)
		if err := logs.Read(t.Context(), path, stdout, stderr, o); !errors.Is(err, logs.ErrUnknownFormat) {
			require.NoError(t, err)
		}
		naiveRead(&want, lines, wanted != 1, wanted != 2, o)
		require.Equal(t, want.String(), both.String(), "%+v of\n%s", o, lines)
	}
}

func randomLog(rng *rand.Rand, start time.Time) string {
	var b strings.Builder
	for i := range 1 + rng.IntN(25) {
		switch {
		case rng.IntN(10) == 0:
			b.WriteString("bad line\n")
		default:
			fmt.Fprintf(&b, "%s %s %s %s\n", start.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano),
				[]string{"stdout", "stderr"}[rng.IntN(2)], []string{"P", "F", "F"}[rng.IntN(3)],
				strings.Repeat("x", rng.IntN(3)*rng.IntN(700)))
		}
	}
	if rng.IntN(4) == 0 {
		fmt.Fprintf(&b, "%s stdout F torn", start.Add(time.Hour).Format(time.RFC3339Nano))
	}
	return b.String()
}

// naiveRead reads a log in memory line by line, as the kubelet does.
func naiveRead(out *bytes.Buffer, text string, stdout, stderr bool, o logs.ReadOptions) {
	lines := strings.SplitAfter(text, "\n")
	whole := len(lines) - 1 // the last line is unfinished or empty
	left := -1
	if o.TailLines != nil && *o.TailLines >= 0 {
		left = int(*o.TailLines)
		lines = lines[max(0, whole-left):]
	}
	inLine := false
	for _, line := range lines {
		if left == 0 || line == "" {
			return
		}
		f := strings.SplitN(line, " ", 4)
		stamp, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil {
			continue
		}
		left--
		content := f[3]
		if f[2] == "P" {
			content = strings.TrimSuffix(content, "\n")
		}
		printed := content
		if o.Timestamps && !inLine {
			printed = stamp.Format("2006-01-02T15:04:05.000000000Z07:00") + " " + printed
		}
		inLine = content != "" && !strings.HasSuffix(content, "\n")
		if stamp.Before(o.Since) || f[1] == "stdout" && !stdout || f[1] == "stderr" && !stderr {
			continue
		}
		if o.LimitBytes != nil && out.Len()+len(printed) >= int(*o.LimitBytes) {
			out.WriteString(printed[:int(*o.LimitBytes)-out.Len()])
			return
		}
		out.WriteString(printed)
	}
}
