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

// TestImageScripts runs testdata/images/*.txt: a node with images, and what becomes of them. What begins with ">" is what comes of
// the line above. Lines:
//
//	policy high=85 low=80 minage=2m maxage=0 kubelet   for a new collector, which keeps nothing but the file of ages
//	disk CAPACITY                                      bytes; 0 is a disk that was measured wrongly
//	fill BYTES                                         what is no image takes so many
//	image NAME SIZE [pinned] [imported] [pulled] [noid] [LAYER:SIZE...]
//	use CONTAINER IMAGE [MOUNT...] | unuse CONTAINER
//	want NAME... | hold IMAGE... | late DURATION | settle DURATION
//	fail OP [ID]                                       the call fails from now on; without OP none does
//	wait DURATION
//	restart                                            the agent, with its file of ages
//	collect | reclaim BYTES | reclaim all | plan
func TestImageScripts(t *testing.T) {
	script.Run(t, "testdata/images/*.txt", func(t *testing.T, text string) (result string) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			n := &imageNode{t: t, store: gctest.NewStore(1000), policy: gc.DefaultImagePolicy(), dir: dir, pulled: map[string]bool{}}
			n.store.Fault = n.fault
			n.begin()
			result = script.Lines(text, ">", n.line)
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

// begin creates a new collector, as a restarted agent does.
func (n *imageNode) begin() {
	var err error
	n.g, err = gc.NewImages(n.store, n.store, gc.ImageOptions{
		Policy: &n.policy, Ages: filepath.Join(n.dir, "ages.json"), Puller: n, PodImages: func() []string { return n.wanted },
		Disk: n.disk, Settle: cmp.Or(n.settle, -1),
		Hooks: gc.ImageHooks{
			Removed: func(i gc.Image, reason gc.RemovalReason) { n.say("removed %s for %s", short(i.ID), reason) },
			Event:   func(reason, message string) { n.say("event %s: %s", reason, message) },
			Error:   func(err error) { n.say("worked around: %v", err) },
		},
	})
	if err != nil {
		n.say("error: %v", err)
	}
}

func (n *imageNode) say(format string, args ...any) { fmt.Fprintf(n.out, "> "+format+"\n", args...) }

func short(id string) string { return strings.TrimPrefix(id, "sha256:") }

func (n *imageNode) disk(ctx context.Context) (gc.Disk, error) {
	if n.noDisk {
		return gc.Disk{}, nil
	}
	return n.store.Disk(ctx)
}

func (n *imageNode) fault(_ context.Context, op, id string) error {
	for _, f := range n.failing {
		if f == op || f == op+" "+short(id) {
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
		names = append(names, short(i.ID))
	}
	n.say("records stay of %s", names)
	return nil
}

func (n *imageNode) line(out *strings.Builder, words []string) {
	n.out = out
	args := words[1:]
	switch words[0] {
	case "policy":
		n.setPolicy(args)
		n.begin()
	case "disk":
		capacity := n.number(args[0])
		n.noDisk = capacity == 0
		n.store = gctest.NewStore(capacity)
		n.store.Fault = n.fault
		n.begin()
	case "fill":
		n.store.SetOtherBytes(n.number(args[0]))
	case "image":
		n.load(args)
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
		time.Sleep(n.duration(args[0]))
	case "late":
		n.store.FreeDelay = n.duration(args[0])
	case "settle":
		n.settle = n.duration(args[0])
		n.begin()
	case "restart":
		n.begin()
	default:
		n.act(words[0], args)
	}
}

// act executes the command what, for example "collect", and prints its result.
func (n *imageNode) act(what string, args []string) {
	switch what {
	case "collect":
		if err := n.g.Collect(n.t.Context()); err != nil {
			n.say("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	case "reclaim":
		want := uint64(gc.ReclaimAll)
		if args[0] != "all" {
			want = n.number(args[0])
		}
		freed, err := n.g.Reclaim(n.t.Context(), want)
		n.say("freed %d", freed)
		if err != nil {
			n.say("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	case "plan":
		plan, disk, err := n.g.Plan(n.t.Context())
		if err != nil {
			n.say("error: %v", err)
			return
		}
		want, over, _ := n.policy.Excess(disk)
		first, _ := plan.CountToFree(want)
		n.say("%d%% used, over %t, %d bytes wanted: %d of", disk.Used(), over, want, first)
		for _, list := range []struct {
			name   string
			images []gc.Image
		}{{"old", plan.Old}, {"unused", plan.Unused}} {
			for _, i := range list.images {
				n.say("  %s %s", list.name, short(i.ID))
			}
		}
		for _, k := range plan.Kept {
			n.say("  %s stays: %s", cmp.Or(short(k.ID), "?"), k.Reason)
		}
	default:
		n.t.Fatalf("unknown line %q", what)
	}
}

func (n *imageNode) setPolicy(args []string) {
	n.policy = gc.DefaultImagePolicy()
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "high":
			n.policy.HighThresholdPercent = int(n.signed(value))
		case "low":
			n.policy.LowThresholdPercent = int(n.signed(value))
		case "minage":
			n.policy.MinAge = n.duration(value)
		case "maxage":
			n.policy.MaxAge = n.duration(value)
		case "kubelet":
			n.policy.Kubelet = true
		default:
			n.t.Fatalf("unknown policy %q", arg)
		}
	}
}

func (n *imageNode) load(args []string) {
	image := cri.Image{
		ID: "sha256:" + args[0], RepoTags: []string{args[0] + ":latest"}, RepoDigests: []string{args[0] + "@sha256:" + args[0]},
		Size: n.number(args[1]),
	}
	var layers []gctest.Layer
	for _, arg := range args[2:] {
		switch name, size, isLayer := strings.Cut(arg, ":"); {
		case isLayer:
			layers = append(layers, gctest.Layer{Name: name, Size: n.number(size)})
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

func (n *imageNode) number(word string) uint64 {
	v, err := strconv.ParseUint(word, 10, 64)
	require.NoError(n.t, err)
	return v
}

func (n *imageNode) signed(word string) int64 {
	v, err := strconv.ParseInt(word, 10, 64)
	require.NoError(n.t, err)
	return v
}

func (n *imageNode) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(n.t, err)
	return d
}
