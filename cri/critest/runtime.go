// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Options configures a [Runtime]. The zero value is a runtime on which everything succeeds at once.
type Options struct {
	// Script says what a container does. It is called once for each container when it is created, with the
	// runtime's lock held; nil gives every container the zero Script.
	Script func(c *cri.ContainerConfig) Script

	// Images are those that the runtime holds at the start; see [NewImage]. Nil: it holds every image, so that tests which
	// are not about images need not name any.
	Images []cri.Image
	// Pull fetches an image, takes as long as it likes, and may fail; nil: every pull succeeds at once. It is
	// called with no lock held and must return when ctx ends.
	Pull func(ctx context.Context, i cri.ImageSpec, auth *cri.Auth) (cri.Image, error)

	// PodCIDR is where sandboxes with a network of their own get addresses from; the zero value is 10.88.0.0/16.
	PodCIDR netip.Prefix

	// Port plays the ports of sandboxes; nil: every connection is refused. It is called with no lock held.
	Port PortFunc

	// Usage measures a running container; nil: nothing is reported. ID, name, attempt, labels and annotations are
	// filled in. It is called with the runtime's lock held.
	Usage func(c cri.Container) cri.ContainerStats
	// Status is how the runtime says that it is; nil: ready.
	Status func() cri.Status
}

// Runtime is a container runtime in memory. All its methods may be called from many goroutines.
type Runtime struct {
	opts Options

	mu         sync.Mutex // guards all below
	sandboxes  []*sandbox // in order of creation
	containers []*container
	byID       map[string]any // the same: *sandbox or *container
	ids        map[string]int // how often each ID was wanted; none is used twice
	images     []cri.Image
	addrs      map[netip.Addr]bool // in use
	lastAddr   netip.Addr
	agenda     agenda
	streams    []*stream
	calls      []*Call
}

var (
	_ cri.Runtime        = (*Runtime)(nil)
	_ cri.PodLister      = (*Runtime)(nil)
	_ cri.EventStreamer  = (*Runtime)(nil)
	_ cri.Execer         = (*Runtime)(nil)
	_ cri.LogReopener    = (*Runtime)(nil)
	_ cri.Updater        = (*Runtime)(nil)
	_ cri.StatsLister    = (*Runtime)(nil)
	_ cri.PodStatsLister = (*Runtime)(nil)
	_ cri.StatusReporter = (*Runtime)(nil)
	_ cri.Images         = (*Runtime)(nil)
	_ cri.Puller         = (*Runtime)(nil)
)

// New returns an empty runtime. It panics when Options.PodCIDR is given and not valid.
func New(o Options) *Runtime {
	if o.Script == nil {
		o.Script = func(*cri.ContainerConfig) Script { return Script{} }
	}
	if o.PodCIDR == (netip.Prefix{}) {
		o.PodCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88}), 16)
	}
	if !o.PodCIDR.IsValid() {
		panic("critest: Options.PodCIDR is not valid")
	}
	return &Runtime{
		opts:     o,
		byID:     map[string]any{},
		ids:      map[string]int{},
		images:   slices.Clone(o.Images),
		addrs:    map[netip.Addr]bool{},
		lastAddr: o.PodCIDR.Masked().Addr(),
	}
}

// List returns all sandboxes and containers with all details, in order of creation.
func (r *Runtime) List(ctx context.Context) (s cri.Snapshot, err error) {
	call := r.begin(Call{Op: "List"})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Snapshot{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s = cri.Snapshot{
		Time:       time.Now(),
		Sandboxes:  make([]cri.Sandbox, len(r.sandboxes)),
		Containers: make([]cri.Container, len(r.containers)),
	}
	for i, sb := range r.sandboxes {
		s.Sandboxes[i] = sb.Sandbox
	}
	for i, c := range r.containers {
		s.Containers[i] = c.Container
	}
	return s, nil
}

// ListPod returns the part of List that belongs to one pod.
func (r *Runtime) ListPod(ctx context.Context, uid string) (p cri.Pod, err error) {
	call := r.begin(Call{Op: "ListPod", ID: uid})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Pod{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pod(cri.PodIdentity{UID: uid}), nil
}

// Container returns a container by its ID, or the newest of a name by "pod/container", where pod is the name or the
// UID of its pod. It is for assertions and leaves no trace in Calls.
func (r *Runtime) Container(ref string) (cri.Container, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.resolve(ref)
	if c == nil {
		return cri.Container{}, false
	}
	return c.Container, true
}

// Kill ends a container behind the agent's back, as a crash or somebody's SIGKILL does. ref is as in
// [Runtime.Container], or the ID of a sandbox: that one then is not ready any more, while its containers go on
// running until it is stopped.
func (r *Runtime) Kill(ref string, code int32) error { return r.KillWith(ref, Exit{Code: code}) }

// KillWith is Kill with more to say of the end, such as the reason OOMKilled. After counts from now.
func (r *Runtime) KillWith(ref string, e Exit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandbox(ref); sb != nil {
		r.endSandbox(sb)
		return nil
	}
	c := r.resolve(ref)
	if c == nil {
		return &cri.Error{Op: "Kill", ID: ref, Err: cri.ErrNotFound}
	}
	if c.State != cri.ContainerRunning {
		return &cri.Error{Op: "Kill", ID: ref, Err: errors.New("container is " + c.State.String())}
	}
	if e.After > 0 {
		r.after(e.After, func() { r.exit(c, e) })
		return nil
	}
	r.exit(c, e)
	return nil
}

// resolve finds a container by ID or by "pod/container". r.mu is held.
func (r *Runtime) resolve(ref string) *container {
	if c := r.container(ref); c != nil {
		return c
	}
	pod, name, ok := strings.Cut(ref, "/")
	if !ok {
		return nil
	}
	for _, c := range slices.Backward(r.containers) {
		if c.Name == name && (c.PodUID == pod || c.pod.Name == pod) {
			return c
		}
	}
	return nil
}

// sandbox returns the sandbox with the ID, or nil. r.mu is held.
func (r *Runtime) sandbox(id string) *sandbox {
	sb, _ := r.byID[id].(*sandbox)
	return sb
}

// container returns the container with the ID, or nil. r.mu is held.
func (r *Runtime) container(id string) *container {
	c, _ := r.byID[id].(*container)
	return c
}

// pod returns everything of one pod. r.mu is held.
func (r *Runtime) pod(id cri.PodIdentity) cri.Pod {
	p := cri.Pod{PodIdentity: id, Time: time.Now()}
	for _, sb := range r.sandboxes {
		if sb.Pod.UID == id.UID {
			p.PodIdentity = sb.Pod
			p.Sandboxes = append(p.Sandboxes, sb.Sandbox)
		}
	}
	for _, c := range r.containers {
		if c.PodUID == id.UID {
			p.Containers = append(p.Containers, c.Container)
		}
	}
	return p
}

// newID returns the words joined by dashes, with a number when they were used before. r.mu is held.
func (r *Runtime) newID(words ...string) string {
	for {
		id := strings.Join(words, "-")
		r.ids[id]++
		if r.ids[id] == 1 {
			return id
		}
		words = []string{id, "again", strconv.Itoa(r.ids[id])}
	}
}

// seconds rounds up to whole seconds, which is all that the CRI can say; what that leaves no room for is [Never].
func seconds(d time.Duration) time.Duration {
	whole := max(d, 0).Truncate(time.Second)
	switch {
	case d <= whole:
		return whole
	case whole > Never-time.Second:
		return Never
	}
	return whole + time.Second
}

func attempt(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func podName(p cri.PodIdentity) string { return cmp.Or(p.Namespace, "-") + "/" + p.Name }
