// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemdtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Fault is an injected failure of one call.
type Fault string

const (
	// Hang ignores the call and never replies. For the method "Auth" the server does not even authenticate.
	Hang Fault = "hang"
	// Disconnect closes the connection without executing the call.
	Disconnect Fault = "hang up"
	// DisconnectAfterCall executes the call and closes the connection instead of replying.
	DisconnectAfterCall Fault = "hang up after"
	// NoReply executes the call and returns the error of a bus that systemd has left.
	NoReply Fault = "no reply"
	// EarlyResult sends the result of the job before the reply to the call.
	EarlyResult Fault = "early"
	// OtherJobResult sends the result of another job of the unit first.
	OtherJobResult Fault = "stray"
	// NoResult completes the job without a JobRemoved signal.
	NoResult Fault = "no signal"
	// JobHangs starts the job and never completes it.
	JobHangs Fault = "no end"
	// Canceled ends the job with result "canceled" and does not change the unit.
	Canceled Fault = "canceled"
	// Failed ends the job with result "failed"; the unit is then failed.
	Failed Fault = "failed"
	// StopReading replies, and then reads nothing more from the connection, which stays open.
	StopReading Fault = "deaf"
	// Denied returns an AccessDenied error.
	Denied Fault = "denied"
)

// Inject makes the next calls of a method fail, one call per fault and in order. A query of the systemd version has the
// method "Get". Clients repeat this query if there is no reply.
func (s *Systemd) Inject(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], faults...)
}

// Pending returns how many of the faults that were injected for a method have not occurred yet.
func (s *Systemd) Pending(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults[method])
}

func (s *Systemd) takeFault(method string) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue := s.faults[method]; len(queue) > 0 {
		f, s.faults[method] = queue[0], queue[1:]
	}
	return f
}

// handleMessage executes the call in msg and replies, or simulates the injected fault. It returns false if the connection
// must be closed.
func (s *Systemd) handleMessage(p *peer, msg *dbus.Message) bool {
	method, _ := msg.Headers[dbus.FieldMember].Value().(string)
	fault := s.takeFault(method)
	if fault == Hang || fault == Disconnect {
		return fault == Hang
	}
	if fault == StopReading {
		defer func() { <-p.disconnected }()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial())}
	body, end, err := s.dispatchCall(p, method, msg, fault)
	if fault == Denied {
		err = dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"Permission denied"})
	}
	if fault == NoReply {
		err = dbus.NewError("org.freedesktop.DBus.Error.NoReply", []any{"Message recipient disconnected from message bus"})
	}
	switch {
	case fault == DisconnectAfterCall:
		return false
	case err != nil:
		reply[dbus.FieldErrorName] = dbus.MakeVariant(err.Name)
		p.sendMessage(dbus.TypeError, reply, err.Body...)
		return true
	case fault == EarlyResult:
		end()
		p.sendMessage(dbus.TypeMethodReply, reply, body...)
		return true
	}
	p.sendMessage(dbus.TypeMethodReply, reply, body...)
	if end != nil {
		end()
	}
	return true
}

// dispatchCall executes a D-Bus call, and returns the body of the reply. sendResult is nil unless the call has queued a job.
func (s *Systemd) dispatchCall(p *peer, method string, msg *dbus.Message, fault Fault) (body []any, sendResult func(), err *dbus.Error) {
	switch method {
	case "Hello":
		return []any{":1.7"}, nil, s.checkIsBus(method)
	case "AddMatch":
		p.matches = true
		return nil, nil, s.checkIsBus(method)
	case "Get":
		return []any{s.objectProperties(msg)[msg.Body[1].(string)]}, nil, nil
	case "GetAll":
		return []any{s.objectProperties(msg)}, nil, nil
	}
	if fault == Denied {
		return nil, nil, nil
	}
	name := msg.Body[0].(string)
	s.calls = append(s.calls, formatCall(method, msg.Body))
	body, sendResult, err = s.callManager(method, name, msg.Body, fault)
	if err == nil && s.observe != nil {
		s.observe(method, name)
	}
	return body, sendResult, err
}

// callManager executes a method of systemd's Manager interface on a unit. sendResult is nil unless the call has queued a
// job.
func (s *Systemd) callManager(method, name string, args []any, fault Fault) (body []any, sendResult func(), err *dbus.Error) {
	switch method {
	case "StartTransientUnit":
		if s.units[name] != nil {
			return nil, nil, newError("UnitExists", "Unit %s was already loaded or has a fragment file.", name)
		}
		props := parseProperties(args[2])
		if _, ok := props["Delegate"]; ok {
			return nil, nil, newError("InvalidArgs", "Delegation not available for unit type")
		}
		for parent := range parentSlices(name) {
			if s.units[parent] == nil {
				s.units[parent] = &Unit{State: "active", Properties: map[string]dbus.Variant{}}
			}
		}
		s.units[name] = &Unit{State: "inactive", Properties: props}
		return s.runJob(name, "active", fault)
	case "StartUnit":
		if s.units[name] == nil {
			s.units[name] = &Unit{Properties: map[string]dbus.Variant{}}
		}
		return s.runJob(name, "active", fault)
	case "StopUnit":
		if s.units[name] == nil {
			return nil, nil, newError("NoSuchUnit", "Unit %s not loaded.", name)
		}
		return s.runJob(name, "inactive", fault)
	case "ResetFailedUnit":
		if s.units[name] == nil {
			return nil, nil, newError("NoSuchUnit", "Unit %s not loaded.", name)
		}
		if s.units[name].State == "failed" {
			delete(s.units, name)
		}
		return nil, nil, nil
	case "SetUnitProperties":
		if s.units[name] == nil {
			s.units[name] = &Unit{State: "inactive", Properties: map[string]dbus.Variant{}}
		}
		maps.Copy(s.units[name].Properties, parseProperties(args[2]))
		return nil, nil, nil
	}
	return nil, nil, newError("UnknownMethod", "Unknown method %s", method)
}

// runJob changes the state of the unit, or applies the fault instead.
func (s *Systemd) runJob(name, state string, fault Fault) (body []any, sendResult func(), err *dbus.Error) {
	s.jobs++
	id, unit := s.jobs, s.units[name]
	path := dbus.ObjectPath(fmt.Sprintf("%s/job/%d", rootPath, id))
	text := "done"
	was := unit.State
	unit.State = state
	switch {
	case fault == Canceled:
		unit.State, text = was, "canceled"
	case fault == JobHangs:
		unit.State, unit.Job = "activating", id
		return []any{path}, nil, nil
	case fault == Failed:
		unit.State, text = "failed", "failed"
	case state == "inactive":
		for other := range s.units {
			if other == name || strings.HasPrefix(other, strings.TrimSuffix(name, ".slice")+"-") {
				delete(s.units, other)
			}
		}
	}
	switch fault {
	case NoResult:
		return []any{path}, nil, nil
	case OtherJobResult:
		s.sendJobRemoved(id+1000, dbus.ObjectPath(fmt.Sprintf("%s/job/%d", rootPath, id+1000)), name, "canceled")
	}
	return []any{path}, func() { s.sendJobRemoved(id, path, name, text) }, nil
}

// sendJobRemoved sends the result of a job to all subscribed clients. The caller holds the lock.
func (s *Systemd) sendJobRemoved(id uint32, job dbus.ObjectPath, unit, text string) {
	for p := range s.conns {
		if s.isBus && !p.matches {
			continue
		}
		p.sendMessage(dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(rootPath)),
			dbus.FieldInterface: dbus.MakeVariant(manager),
			dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		}, id, job, unit, text)
	}
}

// objectProperties returns the properties of the D-Bus object to which msg is addressed: the systemd manager or a unit.
func (s *Systemd) objectProperties(msg *dbus.Message) map[string]dbus.Variant {
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	if path == rootPath {
		return map[string]dbus.Variant{"Version": dbus.MakeVariant(s.version)}
	}
	all := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("inactive"), "Job": jobProperty(0)}
	for name, u := range s.units {
		if strings.HasSuffix(string(path), "/"+escapeUnitName(name)) {
			maps.Copy(all, u.Properties)
			all["ActiveState"], all["Job"] = dbus.MakeVariant(u.State), jobProperty(u.Job)
		}
	}
	return all
}

func jobProperty(id uint32) dbus.Variant {
	return dbus.MakeVariant(struct {
		ID   uint32
		Path dbus.ObjectPath
	}{id, "/"})
}

// escapeUnitName returns a unit name as a part of a D-Bus path. It escapes only the characters that tests use.
func escapeUnitName(name string) string {
	return strings.NewReplacer("-", "_2d", ".", "_2e", "_", "_5f").Replace(name)
}

// checkIsBus returns an error if the server is no message bus, because then it does not have this method.
func (s *Systemd) checkIsBus(method string) *dbus.Error {
	if s.isBus {
		return nil
	}
	return dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{"Unknown object for " + method})
}

func newError(name, format string, args ...any) *dbus.Error {
	return dbus.NewError(busName+"."+name, []any{fmt.Sprintf(format, args...)})
}

// parentSlices yields the parent slices of a slice name.
func parentSlices(name string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i, c := range name {
			if c == '-' && !yield(name[:i]+".slice") {
				return
			}
		}
	}
}

// parseProperties converts an array of name and value pairs to a map.
func parseProperties(v any) map[string]dbus.Variant {
	props := map[string]dbus.Variant{}
	for _, pair := range v.([][]any) {
		props[pair[0].(string)] = pair[1].(dbus.Variant)
	}
	return props
}

// formatCall returns a call as one line with the method, the arguments, and the properties sorted by name.
func formatCall(method string, args []any) string {
	words := []string{method}
	for _, arg := range args {
		list, ok := arg.([][]any)
		if !ok {
			words = append(words, fmt.Sprint(arg))
			continue
		}
		var props []string
		for _, pair := range list {
			props = append(props, fmt.Sprintf("%s=%v", pair[0], pair[1].(dbus.Variant).Value()))
		}
		words = append(words, slices.Sorted(slices.Values(props))...)
	}
	return strings.Join(words, " ")
}
