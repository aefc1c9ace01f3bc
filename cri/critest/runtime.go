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

// Options configures a [Runtime]. With the zero value every call succeeds at once.
type Options struct {
	// Script returns the script of a new container. It is called once per container, with the runtime's lock held; if nil, every
	// container has the zero Script.
	Script func(config *cri.ContainerConfig) Script

	// Images are the images present at the start; see [NewImage]. If nil, every image exists, so that tests need not list images.
	Images []cri.Image
	// Pull fetches an image; it may block and may fail. If nil, every pull succeeds at once. It is called without locks and must
	// return when ctx ends.
	Pull func(ctx context.Context, image cri.ImageSpec, auth *cri.Auth) (cri.Image, error)

	// PodCIDR is the range of sandbox addresses; the zero value means 10.88.0.0/16. Sandboxes on the host network have none.
	PodCIDR netip.Prefix

	// Port plays the ports of sandboxes; if nil, every connection is refused. It is called without locks.
	Port PortFunc

	// Usage returns the usage of a running container; if nil, no usage is reported. The runtime sets ID, name, attempt, labels
	// and annotations. Usage is called with the runtime's lock held.
	Usage func(container cri.Container) cri.ContainerStats
	// Status returns the status of the runtime; if nil, all conditions are true.
	Status func() cri.Status
}

// Runtime is a container runtime in memory. All methods may be called concurrently.
type Runtime struct {
	opts Options

	mu         sync.Mutex // guards all fields below
	sandboxes  []*sandbox // in order of creation
	containers []*container
	byID       map[string]any // *sandbox and *container values by ID
	ids        map[string]int // number of uses of each ID before numbering; no ID is used twice
	images     []cri.Image
	addrs      map[netip.Addr]bool // addresses in use
	lastAddr   netip.Addr
	timers     timerQueue
	streams    []*eventStream
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

// New returns a Runtime without sandboxes and containers. It panics if Options.PodCIDR is invalid.
func New(opts Options) *Runtime {
	if opts.Script == nil {
		opts.Script = func(*cri.ContainerConfig) Script { return Script{} }
	}
	if opts.PodCIDR == (netip.Prefix{}) {
		opts.PodCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88}), 16)
	}
	if !opts.PodCIDR.IsValid() {
		panic("critest: Options.PodCIDR is not valid")
	}
	return &Runtime{
		opts:     opts,
		byID:     map[string]any{},
		ids:      map[string]int{},
		images:   slices.Clone(opts.Images),
		addrs:    map[netip.Addr]bool{},
		lastAddr: opts.PodCIDR.Masked().Addr(),
	}
}

// List returns all sandboxes and containers with all details, in order of creation.
func (r *Runtime) List(ctx context.Context) (s cri.Snapshot, err error) {
	call := r.recordCall(Call{Op: "List"})
	defer r.recordResult(call, &err)
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

// ListPod returns the sandboxes and containers of the pod with this UID, with all details. For an unknown pod it returns a
// Pod without objects.
func (r *Runtime) ListPod(ctx context.Context, uid string) (p cri.Pod, err error) {
	call := r.recordCall(Call{Op: "ListPod", ID: uid})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Pod{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.podObjects(cri.PodIdentity{UID: uid}), nil
}

// Container returns a container by its ID, or by "pod/container" for the newest container with that name in the pod with
// that name or UID. It returns false if there is none. The call is not recorded in Calls.
func (r *Runtime) Container(ref string) (cri.Container, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.resolveContainer(ref)
	if c == nil {
		return cri.Container{}, false
	}
	return c.Container, true
}

// Kill makes a running container exit with this exit code, like a crash. ref is a container ID or name as in
// [Runtime.Container], or a sandbox ID. A killed sandbox becomes not ready, but its containers run until StopSandbox.
func (r *Runtime) Kill(ref string, code int32) error { return r.KillWith(ref, Exit{Code: code}) }

// KillWith makes a running container exit with the values in exit, for example with reason OOMKilled. If exit.After is
// positive, the container exits after that time, and KillWith does not wait for it. ref has the forms of [Runtime.Kill].
func (r *Runtime) KillWith(ref string, exit Exit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandboxByID(ref); sb != nil {
		r.setNotReady(sb)
		return nil
	}
	c := r.resolveContainer(ref)
	if c == nil {
		return &cri.Error{Op: "Kill", ID: ref, Err: cri.ErrNotFound}
	}
	if c.State != cri.ContainerRunning {
		return &cri.Error{Op: "Kill", ID: ref, Err: errors.New("container is " + c.State.String())}
	}
	if exit.After > 0 {
		r.schedule(exit.After, func() { r.exitContainer(c, exit) })
		return nil
	}
	r.exitContainer(c, exit)
	return nil
}

// resolveContainer returns the container with this reference, or nil. ref has the forms of [Runtime.Container]. r.mu is
// held.
func (r *Runtime) resolveContainer(ref string) *container {
	if c := r.containerByID(ref); c != nil {
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

// sandboxByID returns the sandbox with this ID, or nil. r.mu is held.
func (r *Runtime) sandboxByID(id string) *sandbox {
	sb, _ := r.byID[id].(*sandbox)
	return sb
}

// containerByID returns the container with this ID, or nil. r.mu is held.
func (r *Runtime) containerByID(id string) *container {
	c, _ := r.byID[id].(*container)
	return c
}

// podObjects returns the sandboxes and containers of the pod with id.UID. r.mu is held.
func (r *Runtime) podObjects(id cri.PodIdentity) cri.Pod {
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

// newID returns an unused ID of words joined by dashes, with a number if necessary. r.mu is held.
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

// roundUpToSeconds rounds d up to whole seconds, the unit of CRI durations. It returns [Never] if the result would overflow.
func roundUpToSeconds(d time.Duration) time.Duration {
	whole := max(d, 0).Truncate(time.Second)
	switch {
	case d <= whole:
		return whole
	case whole > Never-time.Second:
		return Never
	}
	return whole + time.Second
}

func formatAttempt(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func podName(p cri.PodIdentity) string { return cmp.Or(p.Namespace, "-") + "/" + p.Name }
