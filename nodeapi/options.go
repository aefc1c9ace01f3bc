// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

// Defaults of [Options].
const (
	defaultHeaderTimeout      = 10 * time.Second
	defaultBodyTimeout        = 30 * time.Second
	defaultStallTimeout       = 5 * time.Minute
	defaultIdleTimeout        = 90 * time.Second // the kubelet's
	defaultDrainTimeout       = 5 * time.Second
	defaultMaxHeaderBytes     = 16 << 10
	defaultMaxUnauthenticated = 512
	defaultMaxConnections     = 4096
)

// Pods has the pods of the node, with the status that the agent has found, static pods included. It is called by several goroutines,
// and nobody changes what it returns: what is the same pointer as before is the same pod.
type Pods interface {
	Pods() []*corev1.Pod
}

// PodsFunc is a function as [Pods].
type PodsFunc func() []*corev1.Pod

// Pods calls f.
func (f PodsFunc) Pods() []*corev1.Pod { return f() }

// Streams serves interactive sessions, and whatever may go wrong once it is called. The Server of package streaming is one.
type Streams interface {
	// ServeExec runs a command in a container.
	ServeExec(w http.ResponseWriter, r *http.Request, containerID string, cmd []string, o cri.StreamOptions)
	// ServeAttach connects the client to the process of a container.
	ServeAttach(w http.ResponseWriter, r *http.Request, containerID string, o cri.StreamOptions)
	// ServePortForward connects the client to ports of a sandbox; ports may be empty, because the protocol says them later.
	ServePortForward(w http.ResponseWriter, r *http.Request, sandboxID string, ports []int32)
}

// Summary measures the node and its pods. A summary beside an error is served, and the error goes to the log. The Collector of package
// summary is one.
type Summary interface {
	// Summary measures all that there is.
	Summary(ctx context.Context) (*statsapi.Summary, error)
	// CPUAndMemory measures CPU and memory alone.
	CPUAndMemory(ctx context.Context) (*statsapi.Summary, error)
}

// Metrics are the pages below /metrics. What is nil answers 404.
type Metrics struct {
	All      http.Handler // /metrics
	CAdvisor http.Handler // /metrics/cadvisor
	Resource http.Handler // /metrics/resource
	Probes   http.Handler // /metrics/probes
	SLIs     http.Handler // /metrics/slis
}

// HealthCheck is a check of /healthz, with a page of its own below it.
type HealthCheck struct {
	Name  string // a path element; ping, log and syncloop are taken
	Check func(ctx context.Context) error
}

// Options say what a [Server] serves. What is nil answers 404 unless its comment says otherwise.
type Options struct {
	// Access decides who may send what to Handler. It is required unless Insecure is set.
	Access   *auth.Access
	Insecure bool // Handler lets everybody do everything: behind something that has decided already

	Pods    Pods       // /pods, and with Runtime all that is about one pod
	Runtime cri.Lister // /runningpods; cri.PodLister and cri.Inspector are used where it has them
	Streams Streams    // /exec, /attach and /portForward
	Summary Summary    // /stats/summary
	Metrics Metrics
	// Execer runs what /run asks for. Nil means Runtime, where that is a [cri.Execer].
	Execer cri.Execer
	// Checkpointer writes what /checkpoint asks for, to files below CheckpointDir, which is required with it.
	Checkpointer  cri.Checkpointer
	CheckpointDir string

	SyncLoop     func(ctx context.Context) error // the check syncloop of /healthz; nil is healthy
	HealthChecks []HealthCheck                   // of /healthz

	Settings func() any        // /configz: main's settings in the shape of KubeletConfiguration, as encoding/json takes them
	Flags    map[string]string // /flagz: what the program was started with; without secrets
	Version  string            // of /statusz; empty: that of the main module
	Name     string            // of the program, in /statusz and /flagz; empty means kubelet

	LogLevel  *slog.LevelVar // /debug/flags/v sets it; nil answers 405
	Profiling bool           // /debug/pprof; without it the answer is 405
	NodeLogs  http.Handler   // /logs/, with that prefix; such as a [NodeLogs]. Nil answers 405
	// NoDebugging leaves out what is not on the read-only port: such paths answer 405 (enableDebuggingHandlers: false).
	NoDebugging bool

	// CurrentLogsOnly is the kubelet's way: /containerLogs does not reach into files that were rotated.
	CurrentLogsOnly bool
	// SplitStreams lets /containerLogs return one stream alone (gate PodLogsQuerySplitStreams, off in the kubelet).
	SplitStreams bool

	HeaderTimeout  time.Duration // for the TLS handshake, and then for the headers of each request; zero means 10 s
	BodyTimeout    time.Duration // for the body of a request; zero means 30 s
	StallTimeout   time.Duration // a client that reads nothing for so long is cut off; zero means 5 min
	IdleTimeout    time.Duration // of connections between requests; zero means 90 s
	DrainTimeout   time.Duration // for requests that are under way when Run ends; zero means 5 s
	MaxHeaderBytes int           // zero means 16 KiB
	// MaxUnauthenticated is how many connections an endpoint has whose client was not authenticated yet. Beyond, the oldest is closed. Zero means
	// 512.
	MaxUnauthenticated int
	MaxConnections     int // of an endpoint; beyond, new ones are closed at once; zero means 4096

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Request is what metrics tell requests apart by.
type Request struct {
	Method      string // of HTTP, or other
	Path        string // the first element of the path, with the second for metrics; or other
	ServerType  string // readwrite or readonly
	LongRunning bool
}

// Hooks hear of what a [Server] does. Each may be nil, is called by the goroutine of the request with no lock held, and must not block.
type Hooks struct {
	RequestReceived   func(Request)                     // a request has come, before it is authenticated
	RequestCompleted  func(Request, time.Duration)      // it was answered, or its stream has ended
	ConnectionsClosed func(endpoint string, closed int) // so many connections were closed because there were too many, at this address
}

func (o *Options) validate() error {
	switch {
	case o.Access == nil && !o.Insecure:
		return errors.New("without Access, which package auth has, Insecure has to be set")
	case o.Access != nil && o.Insecure:
		return errors.New("there are Access and Insecure, which exclude each other")
	case o.Streams != nil && (o.Pods == nil || o.Runtime == nil):
		return errors.New("with Streams there must be Pods and Runtime")
	case o.Checkpointer != nil && (o.Pods == nil || o.Runtime == nil || o.CheckpointDir == ""):
		return errors.New("with a Checkpointer there must be Pods, Runtime and CheckpointDir")
	case o.MaxHeaderBytes < 0 || o.MaxUnauthenticated < 0 || o.MaxConnections < 0:
		return fmt.Errorf("none of MaxHeaderBytes %d, MaxUnauthenticated %d and MaxConnections %d may be negative",
			o.MaxHeaderBytes, o.MaxUnauthenticated, o.MaxConnections)
	}
	for _, d := range o.durations() {
		if *d.field < 0 {
			return fmt.Errorf("%s must not be negative: %s", d.name, *d.field)
		}
	}
	return validChecks(o.HealthChecks)
}

type duration struct {
	name  string
	field *time.Duration
	value time.Duration
}

func (o *Options) durations() []duration {
	return []duration{
		{"HeaderTimeout", &o.HeaderTimeout, defaultHeaderTimeout},
		{"BodyTimeout", &o.BodyTimeout, defaultBodyTimeout},
		{"StallTimeout", &o.StallTimeout, defaultStallTimeout},
		{"IdleTimeout", &o.IdleTimeout, defaultIdleTimeout},
		{"DrainTimeout", &o.DrainTimeout, defaultDrainTimeout},
	}
}

func (o *Options) complete() {
	for _, d := range o.durations() {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{{&o.MaxHeaderBytes, defaultMaxHeaderBytes}, {&o.MaxUnauthenticated, defaultMaxUnauthenticated}, {&o.MaxConnections, defaultMaxConnections}} {
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	if o.Execer == nil {
		o.Execer, _ = o.Runtime.(cri.Execer)
	}
	if o.Name == "" {
		o.Name = "kubelet"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
