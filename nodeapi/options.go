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

// Pods returns all pods of the node, including static pods, with the statuses that the agent has observed. It must be safe for
// concurrent use. The returned pods must not be modified: a changed pod must have a new pointer.
type Pods interface {
	Pods() []*corev1.Pod
}

// PodsFunc implements [Pods] with a function.
type PodsFunc func() []*corev1.Pod

// Pods calls f.
func (f PodsFunc) Pods() []*corev1.Pod { return f() }

// Streams serves exec, attach and port-forward sessions, including their error responses. *streaming.Server implements it.
type Streams interface {
	// ServeExec runs a command in a container.
	ServeExec(w http.ResponseWriter, r *http.Request, containerID string, cmd []string, o cri.StreamOptions)
	// ServeAttach connects the client to the process of a container.
	ServeAttach(w http.ResponseWriter, r *http.Request, containerID string, o cri.StreamOptions)
	// ServePortForward connects the client to ports of a sandbox. ports is empty if the protocol names the ports later.
	ServePortForward(w http.ResponseWriter, r *http.Request, sandboxID string, ports []int32)
}

// Summary measures the node and its pods for /stats/summary. If it returns both a summary and an error, the response is the
// summary, and the error is logged. *stats.Collector implements it.
type Summary interface {
	// Summary measures all values.
	Summary(ctx context.Context) (*statsapi.Summary, error)
	// CPUAndMemory measures CPU, memory and swap only.
	CPUAndMemory(ctx context.Context) (*statsapi.Summary, error)
}

// Metrics has the handlers of the paths below /metrics. A path whose handler is nil responds with 404.
type Metrics struct {
	All      http.Handler // /metrics
	CAdvisor http.Handler // /metrics/cadvisor
	Resource http.Handler // /metrics/resource
	Probes   http.Handler // /metrics/probes
	SLIs     http.Handler // /metrics/slis
}

// HealthCheck is an additional check that /healthz runs. The path /healthz/NAME runs it alone.
type HealthCheck struct {
	Name  string // a path element; ping, log and syncloop are reserved
	Check func(ctx context.Context) error
}

// Options configures a [Server]. If a field is nil, its paths respond with 404, unless the comment of the field names another
// status.
type Options struct {
	// Access authenticates and authorizes the requests to Handler. Required unless Insecure is set.
	Access   *auth.Access
	Insecure bool // Handler authorizes every request, for use behind another authorization

	Pods    Pods       // /pods; with Runtime also the paths of a single pod
	Runtime cri.Lister // /runningpods; its methods of cri.PodLister and cri.Inspector are used if it has them
	Streams Streams    // /exec, /attach and /portForward
	Summary Summary    // /stats/summary
	Metrics Metrics
	// Execer runs the commands of /run. Nil means Runtime if it implements cri.Execer.
	Execer cri.Execer
	// Checkpointer writes the checkpoints of /checkpoint to files in CheckpointDir. It requires CheckpointDir.
	Checkpointer  cri.Checkpointer
	CheckpointDir string

	SyncLoop     func(ctx context.Context) error // the check syncloop of /healthz; nil means healthy
	HealthChecks []HealthCheck                   // additional checks of /healthz

	Settings func() any        // /configz: returns the configuration as a KubeletConfiguration, or as a value with its JSON form
	Flags    map[string]string // /flagz: the flags of the program, without secrets
	Version  string            // of the program, for /statusz; empty means that of the main module
	Name     string            // of the program, for /statusz and /flagz; empty means kubelet

	LogLevel  *slog.LevelVar // set by /debug/flags/v; nil means 405
	Profiling bool           // serve /debug/pprof; if false it is answered with 405
	NodeLogs  http.Handler   // serves paths below /logs/, for example a [NodeLogs]; nil means 405
	// NoDebugging answers all paths that the read-only port lacks with 405 (enableDebuggingHandlers: false).
	NoDebugging bool

	// CurrentLogsOnly makes /containerLogs omit rotated files, as the kubelet does.
	CurrentLogsOnly bool
	// SplitStreams allows the query parameter stream of /containerLogs (gate PodLogsQuerySplitStreams, off by default in the
	// kubelet).
	SplitStreams bool

	HeaderTimeout  time.Duration // of the TLS handshake, and of the headers of each request; zero means 10 s
	BodyTimeout    time.Duration // of a request body; zero means 30 s
	StallTimeout   time.Duration // after this time without progress of writing a response, the connection is closed; zero means 5 min
	IdleTimeout    time.Duration // of a connection between requests; zero means 90 s
	DrainTimeout   time.Duration // for requests in progress when Run ends; zero means 5 s
	MaxHeaderBytes int           // zero means 16 KiB
	// MaxUnauthenticated is the largest number of connections per endpoint without an authorized request so far. Above it the
	// oldest of them is closed. Zero means 512.
	MaxUnauthenticated int
	MaxConnections     int // per endpoint; new connections above it are closed at once; zero means 4096

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Request describes a request by the values of its metric labels.
type Request struct {
	Method      string // HTTP method, or other
	Path        string // first path element, two below metrics, or other
	ServerType  string // readwrite or readonly
	LongRunning bool
}

// Hooks are called by a [Server]. Each hook may be nil, is called from the goroutine of the request with no lock held, and must
// not block.
type Hooks struct {
	RequestReceived   func(Request)                     // called before authentication
	RequestCompleted  func(Request, time.Duration)      // the response or the stream has ended; with its duration
	ConnectionsClosed func(endpoint string, closed int) // connections of the endpoint at this address were closed because of a limit
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
	for _, d := range o.durationDefaults() {
		if *d.field < 0 {
			return fmt.Errorf("%s must not be negative: %s", d.name, *d.field)
		}
	}
	return validateChecks(o.HealthChecks)
}

type durationDefault struct {
	name  string
	field *time.Duration
	value time.Duration
}

func (o *Options) durationDefaults() []durationDefault {
	return []durationDefault{
		{"HeaderTimeout", &o.HeaderTimeout, defaultHeaderTimeout},
		{"BodyTimeout", &o.BodyTimeout, defaultBodyTimeout},
		{"StallTimeout", &o.StallTimeout, defaultStallTimeout},
		{"IdleTimeout", &o.IdleTimeout, defaultIdleTimeout},
		{"DrainTimeout", &o.DrainTimeout, defaultDrainTimeout},
	}
}

func (o *Options) setDefaults() {
	for _, d := range o.durationDefaults() {
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
