// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package messages finds what the code writes for people: lines of logs and descriptions of
// flags. Its tests hold the rules of their form, and that no code reads the text of a message.
package messages

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// A Message is a text that a call gives to a log or a flag.
type Message struct {
	Pos  token.Pos
	Text string
	// Constant reports whether the text is a string of the source, and not made while the
	// program runs.
	Constant bool
	// Keys are the names of the facts that a line of a log has beside its message.
	Keys []ast.Expr
}

// Methods that write a line to a log, and the argument that is its message: those of klog, and
// those of loggers.
var (
	ofKlog   = map[string]int{"InfoS": 0, "ErrorS": 1}
	ofLogger = map[string]int{"Info": 0, "Error": 1}
)

// unstructured are the methods of klog that make a line of all their arguments.
var unstructured = []string{
	"Info", "Infof", "Infoln", "Warning", "Warningf", "Warningln", "Error", "Errorf", "Errorln", "Fatal", "Fatalf", "Fatalln", "Exit", "Exitf",
}

// Logs returns the messages of the lines that a file writes to a log.
func Logs(file *ast.File) []Message {
	return find(file, func(call *ast.CallExpr, method string, receiver ast.Expr) (ast.Expr, []ast.Expr) {
		methods := ofLogger
		switch {
		case isKlog(receiver):
			if slices.Contains(unstructured, method) {
				return call, nil
			}
			methods = ofKlog
		case !isLogger(receiver):
			return nil, nil
		}
		at, ok := methods[method]
		if !ok || len(call.Args) <= at {
			return nil, nil
		}
		var keys []ast.Expr
		for i := at + 1; i < len(call.Args); i += 2 {
			keys = append(keys, call.Args[i])
		}
		return call.Args[at], keys
	})
}

// isKlog reports whether an expression is klog, or klog.V(level).
func isKlog(expr ast.Expr) bool {
	if name, ok := expr.(*ast.Ident); ok {
		return name.Name == "klog"
	}
	call, ok := expr.(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	return ok && called.Sel.Name == "V" && isKlog(called.X)
}

// isLogger reports whether an expression is a logger: a variable or field of that name, what
// a function such as klog.FromContext returns, or a level of one of these.
func isLogger(expr ast.Expr) bool {
	switch expr := expr.(type) {
	case *ast.Ident:
		return strings.EqualFold(expr.Name, "log") || strings.EqualFold(expr.Name, "logger")
	case *ast.SelectorExpr:
		return isLogger(expr.Sel)
	case *ast.CallExpr:
		called, ok := expr.Fun.(*ast.SelectorExpr)
		return ok && (slices.Contains([]string{"FromContext", "Background", "LoggerWithName", "LoggerWithValues"}, called.Sel.Name) || isLogger(called.X))
	}
	return false
}

// Flags returns the descriptions of the flags that a file defines: the last argument of a call
// of a flag set whose name or variable is given before it.
func Flags(file *ast.File) []Message {
	return find(file, func(call *ast.CallExpr, method string, _ ast.Expr) (ast.Expr, []ast.Expr) {
		variable := strings.HasSuffix(method, "Var") || strings.HasSuffix(method, "VarP")
		if !variable || len(call.Args) < 3 || !slices.ContainsFunc(call.Args, isFlagName) {
			return nil, nil
		}
		return call.Args[len(call.Args)-1], nil
	})
}

// isFlagName reports whether an expression is a string that may be the name of a flag.
func isFlagName(expr ast.Expr) bool {
	text, ok := Text(expr)
	return ok && text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// find calls a function for each method call of a file, and returns the messages that it picks,
// with their keys.
func find(file *ast.File, pick func(call *ast.CallExpr, method string, receiver ast.Expr) (message ast.Expr, keys []ast.Expr)) (found []Message) {
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if message, keys := pick(call, called.Sel.Name, called.X); message != nil {
			text, ok := Text(message)
			found = append(found, Message{message.Pos(), text, ok, keys})
		}
		return true
	})
	return found
}

// Text returns the text of a string, or of several that are joined, and reports whether an
// expression is that. What is not a literal in a joined text, such as a name of another package,
// is left out.
func Text(expr ast.Expr) (string, bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expr.Value)
		return text, err == nil && expr.Kind == token.STRING
	case *ast.BinaryExpr:
		left, okLeft := Text(expr.X)
		right, okRight := Text(expr.Y)
		return left + right, expr.Op == token.ADD && (okLeft || okRight)
	}
	return "", false
}
