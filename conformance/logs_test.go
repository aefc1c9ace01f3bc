// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kubelet "k8s.io/cri-client/pkg/logs"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// logs.Read returns the same lines of random logs with random options as the kubelet. Exceptions are a first line in an
// unknown format and an unknown stream: the kubelet returns an error, and logs.Read skips the line.
func TestLogReading(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	path := filepath.Join(t.TempDir(), "0.log")
	start := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	compared := 0
	for range 5000 {
		text := randomLog(rng, start)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		theirs := kubelet.LogOptions{Timestamp: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			theirs.TailLines = new(rng.Int64N(30) - 1)
		}
		if rng.IntN(2) == 0 {
			theirs.LimitBytes = new(rng.Int64N(2000))
		}
		if rng.IntN(2) == 0 {
			theirs.Since = start.Add(time.Duration(rng.IntN(20)) * time.Second)
		}
		ours := logs.ReadOptions{TailLines: theirs.TailLines, LimitBytes: theirs.LimitBytes, Since: theirs.Since, Timestamps: theirs.Timestamp}
		var want, got bytes.Buffer
		errWant := kubelet.ReadLogs(context.Background(), path, "", &theirs, nil, &want, &want)
		errGot := logs.Read(context.Background(), path, &got, &got, ours)
		if errWant != nil {
			if !strings.Contains(errWant.Error(), "unsupported log format") {
				t.Fatal(errWant)
			}
			continue
		}
		if errGot != nil && !errors.Is(errGot, logs.ErrUnknownFormat) {
			t.Fatal(errGot)
		}
		compared++
		if want.String() != got.String() {
			t.Fatalf("%+v of\n%s\nkubelet:\n%s\nours:\n%s", ours, text, &want, &got)
		}
	}
	t.Log(compared, "logs compared")
}

func randomLog(rng *rand.Rand, start time.Time) string {
	var b strings.Builder
	docker := rng.IntN(4) == 0
	for i := range 1 + rng.IntN(25) {
		now := start.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
		stream := []string{"stdout", "stderr"}[rng.IntN(2)]
		content := strings.Repeat("x", rng.IntN(3)*rng.IntN(700))
		switch {
		case rng.IntN(12) == 0:
			b.WriteString([]string{"bad line\n", "\n", now + " stdout F\n", now + " stdin F x\n", "{\n"}[rng.IntN(5)])
		case docker:
			fmt.Fprintf(&b, `{"log":"%s%s","stream":"%s","time":"%s"}`+"\n", content, []string{`\n`, ""}[rng.IntN(2)], stream, now)
		default:
			fmt.Fprintf(&b, "%s %s %s %s\n", now, stream, []string{"P", "F", "F:P", "P:T", "X", ""}[rng.IntN(6)], content)
		}
	}
	if rng.IntN(4) == 0 {
		fmt.Fprintf(&b, "%s stdout F torn", start.Add(time.Hour).Format(time.RFC3339Nano))
	}
	return b.String()
}

func BenchmarkLogReading(b *testing.B) {
	line := "2016-10-20T18:39:20.576064430Z stdout F " + strings.Repeat("x", 100) + "\n"
	path := filepath.Join(b.TempDir(), "0.log")
	text := strings.Repeat(line, (10<<20)/len(line))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	b.Run("kubelet", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if err := kubelet.ReadLogs(b.Context(), path, "", &kubelet.LogOptions{}, nil, io.Discard, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("nodeagent", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if err := logs.Read(b.Context(), path, io.Discard, io.Discard, logs.ReadOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
