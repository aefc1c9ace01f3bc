// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/cri/logs"
)

func ExampleRead() {
	dir, err := os.MkdirTemp("", "logs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "0.log")
	entries := "2026-01-02T15:04:05.1Z stdout F first\n" +
		"2026-01-02T15:04:06.2Z stdout P sec\n" +
		"2026-01-02T15:04:06.3Z stdout F ond\n"
	if err := os.WriteFile(path, []byte(entries), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := logs.Read(context.Background(), path, os.Stdout, os.Stderr, logs.ReadOptions{Timestamps: true}); err != nil {
		log.Print(err)
	}
	// Output:
	// 2026-01-02T15:04:05.100000000Z first
	// 2026-01-02T15:04:06.200000000Z second
}

// emptyLog stands in for a runtime, such as the client of package remote, and truncates a log on reopen.
type emptyLog struct{ path string }

func (e emptyLog) ReopenContainerLog(context.Context, string) error {
	return os.WriteFile(e.path, nil, 0o600)
}

func ExampleNewRotator() {
	dir, err := os.MkdirTemp("", "logs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "0.log")
	if err := os.WriteFile(path, make([]byte, 2<<10), 0o600); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	rotator, err := logs.NewRotator(emptyLog{path}, logs.RotatorOptions{
		Policy: logs.Policy{MaxSize: 1 << 10},
		Hooks: logs.Hooks{LogRotated: func(l logs.Log, _ string, size int64) {
			fmt.Println(l.ContainerID, "rotated at", size, "bytes")
			stop()
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	rotator.SetLogs([]logs.Log{{ContainerID: "web", Path: path}}) // to be repeated whenever a container starts or exits
	fmt.Println(rotator.Run(ctx))
	// Output:
	// web rotated at 2048 bytes
	// <nil>
}

func ExamplePolicy_Plan() {
	p := logs.Policy{MaxSize: 10 << 20, MaxFiles: 3}
	dir := []logs.File{
		{Name: "0.log", Size: 10 << 20},
		{Name: "0.log.20260101-000000.gz", Size: 1 << 20},
		{Name: "0.log.20260102-000000", Size: 10 << 20},
	}
	now := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	for _, step := range p.Plan("0.log", dir, now) {
		fmt.Println(step.Op, step.File)
	}
	fmt.Println("disk per container:", p.MaxBytes())
	// Output:
	// remove 0.log.20260101-000000.gz
	// rename 0.log
	// reopen 0.log
	// compress 0.log.20260102-000000
	// disk per container: 32768000
}

// A log shipper reads log files in the format that the runtime writes.
func ExampleDetectFormat() {
	dir, err := os.MkdirTemp("", "logs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "0.log")
	lines := "2026-01-02T15:04:05.1Z stdout F hello\n" +
		`{"log":"trouble\n","stream":"stderr","time":"2026-01-02T15:04:06Z"}` + "\n" +
		"not a log\n"
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		log.Fatal(err)
	}
	files, err := logs.ListFiles(path) // rotated files come first
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			format, err := logs.DetectFormat(line)
			if errors.Is(err, logs.ErrUnknownFormat) {
				fmt.Println("skipped")
				continue
			}
			entry, err := format.Parse(line)
			fmt.Printf("%s %q %t %v\n", entry.Stream, entry.Content, entry.EndsLine(), err)
		}
	}
	// Output:
	// stdout "hello\n" true <nil>
	// stderr "trouble\n" true <nil>
	// skipped
}
