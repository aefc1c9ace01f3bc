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

// Timeouts of calls to a plugin, as in the kubelet.
const (
	InfoTimeout   = time.Second
	NotifyTimeout = 5 * time.Second
)

// Limits for the information of a plugin.
const (
	maxText     = 256 // bytes of a name, type or version
	maxVersions = 64
	maxError    = 1 << 10 // bytes of an error that is sent to a plugin
)

// errIgnored is the error for a plugin whose type has no handler.
var errIgnored = errors.New("no handler for plugins of this type")

// registerPlugin registers the plugin whose socket is at path: it calls GetInfo and the handler, and notifies the plugin.
func (w *Watcher) registerPlugin(ctx context.Context, path string) (Plugin, error) {
	conn, err := plugingrpc.Connect(ctx, path)
	if err != nil {
		return Plugin{}, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	p, err := getInfo(ctx, client, path)
	if err != nil {
		return p, fmt.Errorf("socket %s: %w", path, err)
	}
	h, ok := w.opts.Handlers[p.Type]
	if !ok {
		if w.opts.RefuseOthers {
			return p, errors.Join(errIgnored, notifyPlugin(ctx, client, fmt.Errorf("no handler registered for plugin type: %s", p.Type)))
		}
		return p, errIgnored
	}
	if err := h.Validate(p); err != nil {
		return p, refusePlugin(ctx, client, fmt.Errorf("plugin %s at socket %s is invalid: %w", p.Name, path, err))
	}
	if err := h.Register(ctx, p); err != nil {
		return p, refusePlugin(ctx, client, fmt.Errorf("register plugin %s at socket %s: %w", p.Name, path, err))
	}
	if err := notifyPlugin(ctx, client, nil); err != nil {
		h.Deregister(context.WithoutCancel(ctx), p)
		return p, fmt.Errorf("tell plugin %s at socket %s that it is registered: %w", p.Name, path, err)
	}
	return p, nil
}

// getInfo calls GetInfo of the plugin whose socket is at path, and returns the plugin's name, type, versions and endpoint. It
// returns an error if one of these values is invalid or too long.
func getInfo(ctx context.Context, client registration.RegistrationClient, path string) (Plugin, error) {
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
	return p, p.checkLimits()
}

// checkLimits returns an error if a text or list of p exceeds its limit, or if p.Endpoint is not a valid path.
func (p *Plugin) checkLimits() error {
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

// refusePlugin reports to the plugin that reason has prevented its registration, and returns reason. If the report fails,
// the returned error wraps both errors.
func refusePlugin(ctx context.Context, client registration.RegistrationClient, reason error) error {
	if err := notifyPlugin(ctx, client, reason); err != nil {
		return fmt.Errorf("%w; notify plugin: %w", reason, err)
	}
	return reason
}

// notifyPlugin reports to the plugin that it is registered, or the reason why it is not.
func notifyPlugin(ctx context.Context, client registration.RegistrationClient, reason error) error {
	ctx, cancel := context.WithTimeout(ctx, NotifyTimeout)
	defer cancel()
	status := &registration.RegistrationStatus{PluginRegistered: reason == nil}
	if reason != nil {
		text := reason.Error()
		status.Error = strings.ToValidUTF8(text[:min(len(text), maxError)], "") // protobuf requires valid UTF-8
	}
	_, err := client.NotifyRegistrationStatus(ctx, status)
	return err
}
