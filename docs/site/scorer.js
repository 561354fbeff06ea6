// Sphinx's scores of a search result, but pages for users stand before pages about how pyclmm was built.
var Scorer = {
  score: ([page, , , , score]) =>
    score + (/^(README|docs\/(install|howto|reference))/.test(page) ? 20 : 0) + (/products$/.test(page) ? 5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
