// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"errors"
	"fmt"
	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"io"
	"os"
	"syscall"
)

// settle gives each trial the same kernel to begin with. The page cache and the dentries of removed pods keep their memory
// cgroups alive (num_cgroups of /proc/cgroups shows them), some 400 behind a trial of 100 pods, and every start of a
// container gets slower by each: without this the fifth repeat takes twice as long as the first, whatever is measured. What
// trials read is then read again, so that none begins with a cold cache.
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

// warm runs one pod by bare calls and removes it.
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
		pods:   makePods(namespace, b.opts.image, b.imageID, 1, limits{}),
	}
	defer func() { err = errors.Join(err, t.clean(ctx, namespace)) }()
	return t.startPod(ctx, t.pods[0])
}
