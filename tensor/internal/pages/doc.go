// Package pages asks the system for large pages, where there is a way to.
package pages
