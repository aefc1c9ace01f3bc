// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/device"
)

// Options configure a [Plugin].
type Options struct {
	Devices []device.Device
	Calls   device.PluginOptions // that the plugin requests in addition to Allocate
	// Respond returns the response of Allocate. Nil: the environment variable DEVICES with the IDs, joined by commas.
	Respond func(ids []string) device.Response
}

// Faults replace calls of a [Plugin]. Each func that is set runs in place of the calls of its name. next makes the original call. The funcs run in
// the goroutines of the callers, with no lock held.
type Faults struct {
	Preferred func(ctx context.Context, open, chosen []string, count int, next func() ([]string, error)) ([]string, error)
	Allocate  func(ctx context.Context, ids []string, next func() (device.Response, error)) (device.Response, error)
	PreStart  func(ctx context.Context, ids []string, next func() error) error
}

// Hang blocks until ctx ends, like a call to a hung plugin, and returns ctx.Err().
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Plugin is a [device.Plugin] in memory. Create it with [NewPlugin].
type Plugin struct {
	opts Options

	publishing sync.Mutex // serializes lists; locked before mu

	mu           sync.Mutex // guards the fields below
	devices      []device.Device
	feeds        []device.Feed
	faults       Faults
	calls        []string
	disconnected bool
}

var _ device.Plugin = (*Plugin)(nil)

// errDisconnected is the error of calls after Disconnect.
var errDisconnected = errors.New("the device plugin is disconnected")

// NewPlugin returns a plugin with opts. No feed gets its devices before [Plugin.Attach].
func NewPlugin(opts Options) *Plugin {
	if opts.Respond == nil {
		opts.Respond = func(ids []string) device.Response {
			return device.Response{Env: map[string]string{"DEVICES": strings.Join(ids, ",")}}
		}
	}
	return &Plugin{opts: opts, devices: slices.Clone(opts.Devices)}
}

// Attach sends the devices to feed, now and after each change, until [Plugin.Disconnect]. It returns the error of the first list.
func (p *Plugin) Attach(feed device.Feed) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.mu.Lock()
	if p.disconnected {
		p.mu.Unlock()
		return errDisconnected
	}
	p.feeds = append(p.feeds, feed)
	devices := slices.Clone(p.devices)
	p.mu.Unlock()
	return feed.Update(devices)
}

// SetDevices replaces the devices, and returns the errors of feeds that reject the list.
func (p *Plugin) SetDevices(devices ...device.Device) error {
	return p.changeDevices(func([]device.Device) []device.Device { return devices })
}

// SetHealth changes the health of the device with this ID, and returns the errors of feeds. An unknown ID changes nothing.
func (p *Plugin) SetHealth(id string, healthy bool) error {
	return p.changeDevices(func(devices []device.Device) []device.Device {
		for i := range devices {
			if devices[i].ID == id {
				devices[i].Healthy = healthy
			}
		}
		return devices
	})
}

// changeDevices replaces the devices by the result of change, whose argument is a copy of the current devices.
func (p *Plugin) changeDevices(change func([]device.Device) []device.Device) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.mu.Lock()
	p.devices = slices.Clone(change(slices.Clone(p.devices)))
	devices, feeds := p.devices, slices.Clone(p.feeds)
	p.mu.Unlock()
	var errs []error
	for _, feed := range feeds {
		errs = append(errs, feed.Update(slices.Clone(devices)))
	}
	return errors.Join(errs...)
}

// Disconnect closes all feeds. Later calls of the plugin fail.
func (p *Plugin) Disconnect() {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.mu.Lock()
	feeds := p.feeds
	p.feeds, p.disconnected = nil, true
	p.mu.Unlock()
	for _, feed := range feeds {
		feed.Close()
	}
}

// SetFaults replaces the faults. Calls in progress keep the previous faults.
func (p *Plugin) SetFaults(faults Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = faults
}

// Calls returns the calls in the order in which they began, such as "Allocate gpu0 gpu1" or "Preferred 2 of gpu0 gpu1 with gpu2".
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// beginCall records a call and returns the faults. It returns an error if the plugin is disconnected or ctx has ended.
func (p *Plugin) beginCall(ctx context.Context, name string, words ...string) (Faults, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, strings.Join(append([]string{name}, words...), " "))
	if p.disconnected {
		return Faults{}, errDisconnected
	}
	return p.faults, ctx.Err()
}

// Options returns Options.Calls.
func (p *Plugin) Options() device.PluginOptions { return p.opts.Calls }

// Preferred returns all IDs in chosen and the last IDs in open: count IDs, or fewer if open has too few.
func (p *Plugin) Preferred(ctx context.Context, open, chosen []string, count int) ([]string, error) {
	words := append([]string{fmt.Sprint(count), "of"}, open...)
	faults, err := p.beginCall(ctx, "Preferred", append(append(words, "with"), chosen...)...)
	if err != nil {
		return nil, err
	}
	next := func() ([]string, error) {
		needed := min(max(0, count-len(chosen)), len(open))
		return append(slices.Clone(chosen), open[len(open)-needed:]...), ctx.Err()
	}
	if faults.Preferred != nil {
		return faults.Preferred(ctx, open, chosen, count, next)
	}
	return next()
}

// Allocate returns the response of Options.Respond.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	faults, err := p.beginCall(ctx, "Allocate", ids...)
	if err != nil {
		return device.Response{}, err
	}
	next := func() (device.Response, error) { return p.opts.Respond(ids), ctx.Err() }
	if faults.Allocate != nil {
		return faults.Allocate(ctx, ids, next)
	}
	return next()
}

// PreStart records the call.
func (p *Plugin) PreStart(ctx context.Context, ids []string) error {
	faults, err := p.beginCall(ctx, "PreStart", ids...)
	if err != nil {
		return err
	}
	if faults.PreStart != nil {
		return faults.PreStart(ctx, ids, ctx.Err)
	}
	return nil
}
