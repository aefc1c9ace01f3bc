// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
)

// settle puts the kernel into the same state before each trial. The page cache and the dentries of removed pods keep their
// memory cgroups alive (num_cgroups of /proc/cgroups), some 400 after a trial of 100 pods, and each slows down later
// container starts: otherwise the fifth repeat takes twice as long as the first. settle then reads the binaries, so that no
// trial starts with a cold cache.
func (b *bench) settle(ctx context.Context) error {
	syscall.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
		return fmt.Errorf("let go of removed cgroups: %w", err)
	}
	for _, a := range b.opts.agents {
		if err := readThrough(a.Binary); err != nil {
			return err
		}
	}
	return b.warm(ctx)
}

// readThrough reads a file into the page cache.
func readThrough(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

// warm creates one pod by bare CRI calls and removes it.
func (b *bench) warm(ctx context.Context) (err error) {
	work, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("%s%s-warm", namespacePrefix, b.machine.RunID)
	s := &sample{Subject: "warm-up"}
	t := &trial{
		bench: b, sample: s, work: work,
		labels: map[string]string{cri.LabelPodNamespace: namespace},
		pods:   newPods(namespace, b.opts.image, b.imageID, 1, limits{}),
	}
	defer func() { err = errors.Join(err, t.clean(ctx, namespace)) }()
	return t.startPod(ctx, t.pods[0])
}
