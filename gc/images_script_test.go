// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
	"github.com/seed81659283/nodeagent/internal/reference"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestImageScripts runs testdata/images/*.txt: commands that change the images of a node and collect them. The lines below a
// command that begin with ">" are its results. Commands:
//
//	policy high=85 low=80 minage=2m maxage=0 kubelet   creates a new collector, which reads only the file of ages
//	disk CAPACITY                                      in bytes; 0 simulates an invalid measurement
//	fill BYTES                                         the bytes of other files than images
//	image NAME SIZE [pinned] [imported] [pulled] [noid] [LAYER:SIZE...]
//	use CONTAINER IMAGE [MOUNT...] | unuse CONTAINER
//	want NAME... | hold IMAGE... | late DURATION | settle DURATION
//	fail OP [ID]                                       the call fails from now on; without OP no call fails
//	wait DURATION
//	restart                                            restarts the agent, which reads the file of ages
//	collect | reclaim BYTES | reclaim all | plan
func TestImageScripts(t *testing.T) {
	script.Run(t, "testdata/images/*.txt", func(t *testing.T, text string) (result string) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			n := &imageNode{t: t, store: gctest.NewStore(1000), policy: gc.DefaultImagePolicy(), dir: dir, pulled: map[string]bool{}}
			n.store.Fault = n.failCall
			n.resetCollector()
			result = script.Lines(text, ">", n.runCommand)
		})
		return result
	})
}

// imageNode is the node of a script.
type imageNode struct {
	t       *testing.T
	store   *gctest.Store
	g       *gc.Images
	policy  gc.ImagePolicy
	settle  time.Duration
	dir     string
	noDisk  bool
	wanted  []string
	held    []string
	pulled  map[string]bool
	failing []string
	out     *strings.Builder
}

// resetCollector creates a new collector, as a restarted agent does.
func (n *imageNode) resetCollector() {
	var err error
	n.g, err = gc.NewImages(n.store, n.store, gc.ImageOptions{
		Policy: &n.policy, Ages: filepath.Join(n.dir, "ages.json"), Puller: n, PodImages: func() []string { return n.wanted },
		Disk: n.measureDisk, Settle: cmp.Or(n.settle, -1),
		Hooks: gc.ImageHooks{
			Removed: func(i gc.Image, reason gc.RemovalReason) { n.print("removed %s for %s", shortID(i.ID), reason) },
			Event:   func(reason, message string) { n.print("event %s: %s", reason, message) },
			Error:   func(err error) { n.print("worked around: %v", err) },
		},
	})
	if err != nil {
		n.print("error: %v", err)
	}
}

func (n *imageNode) print(format string, args ...any) { fmt.Fprintf(n.out, "> "+format+"\n", args...) }

func shortID(id string) string { return strings.TrimPrefix(id, "sha256:") }

func (n *imageNode) measureDisk(ctx context.Context) (gc.Disk, error) {
	if n.noDisk {
		return gc.Disk{}, nil
	}
	return n.store.Disk(ctx)
}

func (n *imageNode) failCall(_ context.Context, op, id string) error {
	for _, f := range n.failing {
		if f == op || f == op+" "+shortID(id) {
			return errors.New("out of order")
		}
	}
	return nil
}

// Claim, HasPullRecord and Prune implement gc.Puller.
func (n *imageNode) Claim(image cri.Image, _ time.Time) (release func(), ok bool) {
	for _, name := range n.held {
		if reference.Identity(image.RepoTags[0]) == reference.Identity(name) {
			return nil, false
		}
	}
	return func() {}, true
}

func (n *imageNode) HasPullRecord(id string) bool { return n.pulled[id] }

func (n *imageNode) Prune(present []cri.Image, _ time.Time) error {
	names := []string{}
	for _, i := range present {
		names = append(names, shortID(i.ID))
	}
	n.print("records stay of %s", names)
	return nil
}

func (n *imageNode) runCommand(out *strings.Builder, words []string) {
	n.out = out
	args := words[1:]
	switch words[0] {
	case "policy":
		n.setPolicy(args)
		n.resetCollector()
	case "disk":
		capacity := n.parseUint(args[0])
		n.noDisk = capacity == 0
		n.store = gctest.NewStore(capacity)
		n.store.Fault = n.failCall
		n.resetCollector()
	case "fill":
		n.store.SetOtherBytes(n.parseUint(args[0]))
	case "image":
		n.addImage(args)
	case "use":
		mounts := []string{}
		for _, m := range args[2:] {
			mounts = append(mounts, "sha256:"+m)
		}
		n.store.AddContainer(args[0], "sha256:"+args[1], mounts...)
	case "unuse":
		n.store.RemoveContainer(args[0])
	case "want":
		n.wanted = args
	case "hold":
		n.held = args
	case "fail":
		n.failing = []string{strings.Join(args, " ")}
	case "wait":
		time.Sleep(n.parseDuration(args[0]))
	case "late":
		n.store.FreeDelay = n.parseDuration(args[0])
	case "settle":
		n.settle = n.parseDuration(args[0])
		n.resetCollector()
	case "restart":
		n.resetCollector()
	default:
		n.runCollection(words[0], args)
	}
}

// runCollection executes a command of the collector, for example "collect", and prints its result.
func (n *imageNode) runCollection(command string, args []string) {
	switch command {
	case "collect":
		if err := n.g.Collect(n.t.Context()); err != nil {
			n.print("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	case "reclaim":
		want := uint64(gc.ReclaimAll)
		if args[0] != "all" {
			want = n.parseUint(args[0])
		}
		freed, err := n.g.Reclaim(n.t.Context(), want)
		n.print("freed %d", freed)
		if err != nil {
			n.print("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	case "plan":
		plan, disk, err := n.g.Plan(n.t.Context())
		if err != nil {
			n.print("error: %v", err)
			return
		}
		want, over, _ := n.policy.Excess(disk)
		first, _ := plan.CountToFree(want)
		n.print("%d%% used, over %t, %d bytes wanted: %d of", disk.Used(), over, want, first)
		for _, list := range []struct {
			name   string
			images []gc.Image
		}{{"old", plan.Old}, {"unused", plan.Unused}} {
			for _, i := range list.images {
				n.print("  %s %s", list.name, shortID(i.ID))
			}
		}
		for _, k := range plan.Kept {
			n.print("  %s stays: %s", cmp.Or(shortID(k.ID), "?"), k.Reason)
		}
	default:
		n.t.Fatalf("unknown line %q", command)
	}
}

func (n *imageNode) setPolicy(args []string) {
	n.policy = gc.DefaultImagePolicy()
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "high":
			n.policy.HighThresholdPercent = int(n.parseInt(value))
		case "low":
			n.policy.LowThresholdPercent = int(n.parseInt(value))
		case "minage":
			n.policy.MinAge = n.parseDuration(value)
		case "maxage":
			n.policy.MaxAge = n.parseDuration(value)
		case "kubelet":
			n.policy.Kubelet = true
		default:
			n.t.Fatalf("unknown policy %q", arg)
		}
	}
}

func (n *imageNode) addImage(args []string) {
	image := cri.Image{
		ID: "sha256:" + args[0], RepoTags: []string{args[0] + ":latest"}, RepoDigests: []string{args[0] + "@sha256:" + args[0]},
		Size: n.parseUint(args[1]),
	}
	var layers []gctest.Layer
	for _, arg := range args[2:] {
		switch name, size, isLayer := strings.Cut(arg, ":"); {
		case isLayer:
			layers = append(layers, gctest.Layer{Name: name, Size: n.parseUint(size)})
		case arg == "pinned":
			image.Pinned = true
		case arg == "imported":
			image.RepoDigests = nil
		case arg == "pulled":
			n.pulled[image.ID] = true
		case arg == "noid":
			image.ID = ""
		default:
			n.t.Fatalf("unknown fact %q", arg)
		}
	}
	if layers == nil {
		layers = []gctest.Layer{{Name: args[0], Size: image.Size}}
	}
	n.store.PutImage(image, layers...)
}

func (n *imageNode) parseUint(word string) uint64 {
	v, err := strconv.ParseUint(word, 10, 64)
	require.NoError(n.t, err)
	return v
}

func (n *imageNode) parseInt(word string) int64 {
	v, err := strconv.ParseInt(word, 10, 64)
	require.NoError(n.t, err)
	return v
}

func (n *imageNode) parseDuration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(n.t, err)
	return d
}
