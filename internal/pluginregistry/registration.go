// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/seed81659283/nodeagent/internal/plugingrpc"
)

// How long a plugin may take to answer. They are the kubelet's.
const (
	InfoTimeout   = time.Second
	NotifyTimeout = 5 * time.Second
)

// The bounds of what a plugin says about itself.
const (
	maxText     = 256 // bytes of a name, a type or a version
	maxVersions = 64
	maxError    = 1 << 10 // bytes that a plugin is told
)

// errIgnored is that of a plugin of somebody else.
var errIgnored = errors.New("nobody handles plugins of this type")

// register asks who is behind a socket, has it registered and tells it what came of that.
func (w *Watcher) register(ctx context.Context, path string) (Plugin, error) {
	conn, err := plugingrpc.Connect(ctx, path)
	if err != nil {
		return Plugin{}, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	p, err := info(ctx, client, path)
	if err != nil {
		return p, fmt.Errorf("socket %s: %w", path, err)
	}
	h, ok := w.opts.Handlers[p.Type]
	if !ok {
		if w.opts.RefuseOthers {
			return p, errors.Join(errIgnored, notify(ctx, client, fmt.Errorf("no handler registered for plugin type: %s", p.Type)))
		}
		return p, errIgnored
	}
	if err := h.Validate(p); err != nil {
		return p, refuse(ctx, client, fmt.Errorf("plugin %s at socket %s is invalid: %w", p.Name, path, err))
	}
	if err := h.Register(ctx, p); err != nil {
		return p, refuse(ctx, client, fmt.Errorf("register plugin %s at socket %s: %w", p.Name, path, err))
	}
	if err := notify(ctx, client, nil); err != nil {
		h.Deregister(context.WithoutCancel(ctx), p)
		return p, fmt.Errorf("tell plugin %s at socket %s that it is registered: %w", p.Name, path, err)
	}
	return p, nil
}

// info asks a plugin who it is.
func info(ctx context.Context, client registration.RegistrationClient, path string) (Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, InfoTimeout)
	defer cancel()
	answer, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return Plugin{}, fmt.Errorf("GetInfo: %w", err)
	}
	p := Plugin{Type: answer.GetType(), Name: answer.GetName(), Endpoint: answer.GetEndpoint(), Socket: path, Versions: answer.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	return p, p.check()
}

// check returns an error for a plugin that says too much about itself, or what cannot be.
func (p *Plugin) check() error {
	if len(p.Versions) > maxVersions {
		return fmt.Errorf("%d versions, more than %d", len(p.Versions), maxVersions)
	}
	for _, s := range append([]string{p.Type, p.Name}, p.Versions...) {
		if len(s) > maxText {
			return fmt.Errorf("%.32q... has more than %d bytes", s, maxText)
		}
	}
	if err := plugingrpc.CheckPath(p.Endpoint); err != nil {
		return fmt.Errorf("endpoint of plugin %s: %w", strconv.Quote(p.Name), err)
	}
	return nil
}

// refuse tells a plugin why it is not registered, and returns that.
func refuse(ctx context.Context, client registration.RegistrationClient, why error) error {
	if err := notify(ctx, client, why); err != nil {
		return fmt.Errorf("%w; the plugin was not told: %w", why, err)
	}
	return why
}

// notify tells a plugin that it is registered, or why it is not.
func notify(ctx context.Context, client registration.RegistrationClient, why error) error {
	ctx, cancel := context.WithTimeout(ctx, NotifyTimeout)
	defer cancel()
	status := &registration.RegistrationStatus{PluginRegistered: why == nil}
	if why != nil {
		text := why.Error()
		status.Error = strings.ToValidUTF8(text[:min(len(text), maxError)], "") // which no message can be without
	}
	_, err := client.NotifyRegistrationStatus(ctx, status)
	return err
}
